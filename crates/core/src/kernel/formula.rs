//! A loop as a tree: what the assembler, the traffic arithmetic and the answer key all work from. One text decides what
//! runs, what is counted and what is shown; `parser.rs` reads it.

use std::fmt;

use crate::in_order::distinct;

/// One element of a stream, relative to the element that the loop stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// Index into [`Formula::streams`].
    pub stream: usize,
    /// Rows away, for loops over a grid; 0 for plain arrays.
    pub row: i32,
    /// Elements away.
    pub column: i32,
}

/// The right-hand side of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// An element of a stream.
    Element(Access),
    /// The element of `stream` whose number stands in `index`.
    Gathered {
        /// Index into [`Formula::streams`].
        stream: usize,
        /// An element of a stream of whole numbers.
        index: Access,
    },
    /// A number that the loop does not change: an index into [`Formula::scalars`].
    Scalar(usize),
    /// A number in the text.
    Number(f64),
    /// A function of one operand.
    Unary(Function, Box<Expr>),
    /// Two operands and what is done with them.
    Binary(Operation, Box<Expr>, Box<Expr>),
    /// `fma(x, y, z)`: x*y + z, rounded once where the processor can.
    MultiplyAdd(Box<[Expr; 3]>),
}

/// A function of one operand: one flop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// `-x`
    Negate,
    /// `abs(x)`
    Absolute,
    /// `sqrt(x)`
    Root,
}

/// An arithmetic operation: one flop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `min(x, y)`: x if x < y, else y.
    Minimum,
    /// `max(x, y)`: x if x > y, else y.
    Maximum,
}

/// Where a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Stored to a stream.
    Element(Access),
    /// Added to a sum: an index into [`Formula::sums`].
    Sum(usize),
    /// Only loaded.
    Nothing,
}

/// What a stream's elements are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Numbers that the loop walks along.
    Values,
    /// Numbers that an index stream chooses from.
    Gathered,
    /// Whole numbers of an element's size: places in gathered streams.
    Index,
}

/// One stream (array) of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Its name in the text.
    pub name: String,
    /// What it holds.
    pub role: Role,
    /// Whether the loop reads it.
    pub loaded: bool,
    /// Whether the loop writes it.
    pub stored: bool,
}

/// `target = value`, for each element.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// Where the value goes.
    pub target: Target,
    /// What is computed.
    pub value: Expr,
}

/// What an index stream holds: each place of the gathered streams once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexOrder {
    /// In random order.
    Random,
    /// One after the other.
    Sequential,
}

/// Elements at the edges that a loop reads or skips, and does not compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Margins {
    /// Before the first element of a row.
    pub left: u64,
    /// After its last.
    pub right: u64,
    /// Rows before the first.
    pub above: u64,
    /// Rows after the last.
    pub below: u64,
}

/// A loop body: its statements are done in order for each element. No stream is stored twice, and one that is stored is
/// read at the same place only, before it is stored: so elements may be computed in any order, many at a time.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    /// The streams in order of appearance.
    pub streams: Vec<Stream>,
    /// The names of its scalars in order of appearance. All have the same value: what is to differ is set to a number.
    pub scalars: Vec<String>,
    /// The names of its sums.
    pub sums: Vec<String>,
    /// What is done for each element.
    pub statements: Vec<Statement>,
    /// Whether elements are addressed by row and column.
    pub grid: bool,
    /// What index streams hold, where there are some.
    pub order: IndexOrder,
}

impl Expr {
    /// Calls `visit` for every node, operands first and from left to right.
    pub fn each(&self, visit: &mut dyn FnMut(&Expr)) {
        match self {
            Expr::Unary(_, operand) => operand.each(visit),
            Expr::Binary(_, left, right) => {
                left.each(visit);
                right.each(visit);
            }
            Expr::MultiplyAdd(operands) => operands.iter().for_each(|operand| operand.each(visit)),
            Expr::Element(_) | Expr::Gathered { .. } | Expr::Scalar(_) | Expr::Number(_) => {}
        }
        visit(self);
    }

    /// Whether it is the same for all elements.
    pub fn is_constant(&self) -> bool {
        matches!(self, Expr::Scalar(_) | Expr::Number(_))
    }

    fn is_product(&self) -> bool {
        matches!(self, Expr::Binary(Operation::Multiply, ..))
    }

    /// The factors and the addend of a sum with a product in it, which processors with fused multiply-add compute as
    /// one. Of two products the right one is fused.
    pub fn fused<'a>(left: &'a Expr, right: &'a Expr) -> Option<([&'a Expr; 2], &'a Expr)> {
        let (product, addend) = if right.is_product() { (right, left) } else { (left, right) };
        match product {
            Expr::Binary(Operation::Multiply, x, y) => Some(([x, y], addend)),
            _ => None,
        }
    }

    fn set(&mut self, scalar: usize, value: f64) {
        match self {
            Expr::Scalar(index) if *index == scalar => *self = Expr::Number(value),
            // Those after it move up.
            Expr::Scalar(index) if *index > scalar => *index -= 1,
            Expr::Unary(_, operand) => operand.set(scalar, value),
            Expr::Binary(_, left, right) => {
                left.set(scalar, value);
                right.set(scalar, value);
            }
            Expr::MultiplyAdd(operands) => operands.iter_mut().for_each(|operand| operand.set(scalar, value)),
            Expr::Element(_) | Expr::Gathered { .. } | Expr::Scalar(_) | Expr::Number(_) => {}
        }
        // As the parser reads it back.
        if let Expr::Unary(Function::Negate, operand) = self
            && let Expr::Number(number) = **operand
        {
            *self = Expr::Number(-number);
        }
    }
}

impl Formula {
    /// Gives a scalar a value of its own. The error names the scalars there are.
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        let Some(scalar) = self.scalars.iter().position(|known| known == name) else {
            let known = if self.scalars.is_empty() { "none".into() } else { self.scalars.join(", ") };
            return Err(format!("the loop has no scalar '{name}' to set; it has {known}"));
        };
        self.scalars.remove(scalar);
        self.statements.iter_mut().for_each(|statement| statement.value.set(scalar, value));
        Ok(())
    }

    fn each(&self, visit: &mut dyn FnMut(&Expr)) {
        self.statements.iter().for_each(|statement| statement.value.each(visit));
    }

    /// Every element read, in the order in which it is computed. A gathered stream is read at one place, its first.
    pub fn loads(&self) -> Vec<Access> {
        let mut found = Vec::new();
        self.each(&mut |expr| match expr {
            Expr::Element(access) => found.push(*access),
            Expr::Gathered { stream, index } => found.extend([*index, Access { stream: *stream, row: 0, column: 0 }]),
            _ => {}
        });
        found
    }

    /// Whether a load may be non-temporal. Those at an offset are never at a multiple of their size where the others are, and those by
    /// an index have no such instruction.
    pub fn may_load_nt(&self, access: &Access) -> bool {
        access.column == 0 && self.streams[access.stream].role == Role::Values
    }

    /// Every element written.
    pub fn stores(&self) -> Vec<Access> {
        let stored = |statement: &Statement| match statement.target {
            Target::Element(access) => Some(access),
            Target::Sum(_) | Target::Nothing => None,
        };
        self.statements.iter().filter_map(stored).collect()
    }

    /// The first element written, if one is.
    pub fn store(&self) -> Option<Access> {
        self.stores().first().copied()
    }

    /// Whether a pass acts on what the pass before left: a stream is changed in place.
    pub fn is_in_place(&self) -> bool {
        self.streams.iter().any(|stream| stream.loaded && stream.stored)
    }

    /// Whether all that passes do to streams changed in place is to add the same to them each time.
    pub fn adds_up(&self) -> bool {
        let is_changed = |access: &Access| self.streams[access.stream].loaded && self.streams[access.stream].stored;
        let is_free = |expr: &Expr| {
            let mut reads = false;
            expr.each(&mut |expr| reads |= matches!(expr, Expr::Element(access) if is_changed(access)));
            !reads
        };
        self.statements.iter().all(|statement| match (statement.target, &statement.value) {
            (Target::Element(target), value) if is_changed(&target) => match value {
                Expr::Binary(Operation::Add, left, right) => {
                    (**left == Expr::Element(target) && is_free(right))
                        || (**right == Expr::Element(target) && is_free(left))
                }
                _ => false,
            },
            _ => true,
        })
    }

    /// Whether some elements are chosen by an index stream.
    pub fn gathers(&self) -> bool {
        self.streams.iter().any(|stream| stream.role == Role::Index)
    }

    /// Whether numbers are divided or their roots taken, so that zero or less would not be ordinary operands.
    pub fn needs_positive(&self) -> bool {
        let mut found = false;
        self.each(&mut |expr| {
            found |= matches!(expr, Expr::Binary(Operation::Divide, ..) | Expr::Unary(Function::Root, _));
        });
        found
    }

    /// Whether it stores zeros and nothing else, with all of their bits clear.
    pub fn writes_zeros(&self) -> bool {
        match &self.statements[..] {
            [Statement { target: Target::Element(_), value: Expr::Number(number) }] => number.to_bits() == 0,
            _ => false,
        }
    }

    /// Floating-point operations for each element: one for every operation and function; a fused multiply-add counts as two.
    pub fn flops(&self) -> u32 {
        let mut flops = 0;
        self.each(&mut |expr| {
            flops += match expr {
                Expr::Unary(..) | Expr::Binary(..) => 1,
                Expr::MultiplyAdd(_) => 2,
                _ => 0,
            };
        });
        let sums = self.statements.iter().filter(|statement| matches!(statement.target, Target::Sum(_)));
        flops + sums.count() as u32
    }

    /// The rows of streams that one sweep walks along side by side: (stream, rows away). Each needs a pointer.
    pub fn lanes_of_access(&self) -> Vec<(usize, i32)> {
        distinct(self.stores().into_iter().chain(self.loads()).map(|a| (a.stream, a.row)))
    }

    /// Elements at the edges that offsets reach.
    pub fn margins(&self) -> Margins {
        let accesses: Vec<Access> = self.stores().into_iter().chain(self.loads()).collect();
        let reach = |offset: fn(&Access) -> i32| accesses.iter().map(|a| offset(a).max(0) as u64).max().unwrap_or(0);
        Margins {
            left: reach(|a| -a.column),
            right: reach(|a| a.column),
            above: reach(|a| -a.row),
            below: reach(|a| a.row),
        }
    }
}

impl Margins {
    /// The shortest row in which an element is computed.
    pub fn least_columns(self) -> u64 {
        self.left + self.right + 1
    }
}

impl Operation {
    fn sign(self) -> &'static str {
        match self {
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::Multiply => "*",
            Operation::Divide => "/",
            Operation::Minimum => "min",
            Operation::Maximum => "max",
        }
    }

    /// How tightly it binds its operands.
    fn level(self) -> u32 {
        match self {
            Operation::Add | Operation::Subtract => SUM,
            Operation::Multiply | Operation::Divide => PRODUCT,
            Operation::Minimum | Operation::Maximum => ATOM,
        }
    }
}

// How tightly parts of an expression bind.
const SUM: u32 = 0;
const PRODUCT: u32 = 1;
const FACTOR: u32 = 2;
const ATOM: u32 = 3;

/// The loop in one agreed way of writing it: texts of the same tree and the same names come out alike, and what comes out
/// is read as the same tree.
impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, statement) in self.statements.iter().enumerate() {
            f.write_str(if place > 0 { "; " } else { "" })?;
            match statement.target {
                Target::Element(access) => write!(f, "{} = ", self.element(access))?,
                Target::Sum(sum) => write!(f, "{} += ", self.sums[sum])?,
                Target::Nothing => {}
            }
            f.write_str(&self.expression(&statement.value, SUM))?;
        }
        if self.gathers() && self.order == IndexOrder::Sequential {
            f.write_str(" with sequential index")
        } else {
            Ok(())
        }
    }
}

impl Formula {
    fn element(&self, access: Access) -> String {
        let index = |letter: &str, offset: i32| match offset {
            0 => format!("[{letter}]"),
            _ => format!("[{letter}{offset:+}]"),
        };
        let row = if self.grid { index("j", access.row) } else { String::new() };
        format!("{}{row}{}", self.streams[access.stream].name, index("i", access.column))
    }

    /// The text of `expr`, in brackets where what stands around it binds at `level`.
    fn expression(&self, expr: &Expr, level: u32) -> String {
        let list = |operands: &[&Expr]| operands.iter().map(|e| self.expression(e, SUM)).collect::<Vec<_>>().join(", ");
        let (text, own) = match expr {
            Expr::Element(access) => (self.element(*access), ATOM),
            Expr::Gathered { stream, index } => {
                (format!("{}[{}]", self.streams[*stream].name, self.element(*index)), ATOM)
            }
            Expr::Scalar(scalar) => (self.scalars[*scalar].clone(), ATOM),
            Expr::Number(number) => (number_text(*number), if number.is_sign_negative() { FACTOR } else { ATOM }),
            Expr::Unary(Function::Negate, operand) => (format!("-{}", self.expression(operand, FACTOR)), FACTOR),
            Expr::Unary(Function::Absolute, operand) => (format!("abs({})", list(&[operand])), ATOM),
            Expr::Unary(Function::Root, operand) => (format!("sqrt({})", list(&[operand])), ATOM),
            Expr::MultiplyAdd(operands) => (format!("fma({})", list(&operands.each_ref())), ATOM),
            Expr::Binary(operation, left, right) => {
                let (sign, own) = (operation.sign(), operation.level());
                let text = match own {
                    ATOM => format!("{sign}({})", list(&[left, right])),
                    // Operators of one level are read from left to right.
                    SUM => format!("{} {sign} {}", self.expression(left, own), self.expression(right, own + 1)),
                    _ => format!("{}{sign}{}", self.expression(left, own), self.expression(right, own + 1)),
                };
                (text, own)
            }
        };
        if own < level { format!("({text})") } else { text }
    }
}

/// The shortest text that is read as the same number.
fn number_text(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-5..1e15).contains(&size) { number.to_string() } else { format!("{number:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vector_triad_is_read() {
        let triad = Formula::parse("a[i] = b[i] + c[i]*d[i]").unwrap();
        assert_eq!(triad.streams.iter().map(|s| s.name.as_str()).collect::<String>(), "abcd");
        assert_eq!(triad.flops(), 2);
        assert_eq!(triad.loads().len(), 3);
        assert_eq!(triad.store(), Some(Access { stream: 0, row: 0, column: 0 }));
        assert!(!triad.streams[0].loaded && triad.streams[0].stored);
    }

    #[test]
    fn a_grid_is_read() {
        let jacobi = Formula::parse("a[j][i] = s*(b[j][i-1] + b[j][i+1] + b[j-1][i] + b[j+1][i])").unwrap();
        assert!(jacobi.grid);
        assert_eq!(jacobi.flops(), 4);
        assert_eq!(jacobi.lanes_of_access(), [(0, 0), (1, -1), (1, 0), (1, 1)]);
        assert_eq!(jacobi.margins(), Margins { left: 1, right: 1, above: 1, below: 1 });
    }

    #[test]
    fn loops_that_write_zeros_alone() {
        let check =
            |text: &str, expect: bool| assert_eq!(Formula::parse(text).unwrap().writes_zeros(), expect, "{text}");
        check("a[i] = 0", true);
        check("a[i] = 0.0", true);
        check("a[i] = -0", false);
        check("a[i] = 1", false);
        check("a[i] = s", false);
        check("a[i] = 0*b[i]", false);
        check("a[i] = 0; b[i] = 0", false);
    }

    /// Counted by hand: each operation, function and addition to a sum is one, a fused multiply-add two.
    #[test]
    fn flops_are_as_counted_by_hand() {
        let check = |text: &str, flops: u32| assert_eq!(Formula::parse(text).unwrap().flops(), flops, "{text}");
        check("a[i] = b[i]", 0);
        check("a[i] = -b[i]", 1);
        check("a[i] = -2*b[i]", 1);
        check("a[i] = b[i]/c[i] - sqrt(d[i])", 3);
        check("a[i] = fma(b[i], s, c[i])", 2);
        check("a[i] = min(abs(b[i]), max(c[i], 1))", 3);
        check("a[i] += b[i]", 1);
        check("x += a[i]*b[i]; y += a[i]*a[i]", 4);
        check("a[i] = b[idx[i]]*s", 1);
    }

    #[test]
    fn a_loop_is_written_in_one_way() {
        let check = |text: &str, expect: &str| assert_eq!(Formula::parse(text).unwrap().to_string(), expect);
        check(" a [ i ]=b[ i ]+(s*c[i]) ", "a[i] = b[i] + s*c[i]");
        check("a[i]+=2.50*b[i+1];", "a[i] = a[i] + 2.5*b[i+1]");
        check("a[i]=(b[i]-(c[i]-d[i]))*-(3)", "a[i] = (b[i] - (c[i] - d[i]))*-3");
        check("a[i]=b[i]/(c[i]*s)/1e-9", "a[i] = b[i]/(c[i]*s)/1e-9");
        check("t+=x[k[i-2]]  with  sequential index", "t += x[k[i-2]] with sequential index");
        check("t+=x[k[i]] with random index", "t += x[k[i]]");
        check("a[i] = -(b[i] + 1); c[i] = -b[i]*s", "a[i] = -(b[i] + 1); c[i] = -b[i]*s");
    }

    #[test]
    fn a_scalar_gets_a_value_of_its_own() {
        let mut formula = Formula::parse("a[i] = s*b[i] + t*c[i] - -s").unwrap();
        formula.set("s", -0.5).unwrap();
        assert_eq!(formula.to_string(), "a[i] = -0.5*b[i] + t*c[i] - 0.5");
        assert_eq!(formula, Formula::parse(&formula.to_string()).unwrap());
        assert_eq!(formula.set("s", 1.0).unwrap_err(), "the loop has no scalar 's' to set; it has t");
    }
}
