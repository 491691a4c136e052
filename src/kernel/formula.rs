//! The text of a loop, such as `a[i] = b[i] + s*c[i]`, read into the tree that the assembler and the traffic
//! arithmetic both work from. One text decides what runs, what is counted and what is shown.
//!
//! Grammar: `[target (= | +=)] sum`, sums and products of stream elements, the scalar `s`, numbers and brackets.
//! A stream element is `b[i]`, `b[i-1]`, or on a grid `b[j][i]`, `b[j-1][i+1]`. `sum += b[i]` reduces.

use std::fmt;

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
    /// The loop's scalar `s`.
    Scalar,
    /// A number in the text.
    Number(f64),
    /// Two operands and what is done with them.
    Binary(Operation, Box<Expr>, Box<Expr>),
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
}

/// Where a value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Stored to a stream.
    Element(Access),
    /// Added to the loop's sum.
    Sum,
    /// Only loaded.
    Nothing,
}

/// One stream (array) of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stream {
    /// Its letter in the text.
    pub name: String,
    /// Whether the loop reads it.
    pub loaded: bool,
    /// Whether the loop writes it.
    pub stored: bool,
}

/// A loop body: `target = value` for each element.
#[derive(Debug, Clone, PartialEq)]
pub struct Formula {
    /// The streams in order of appearance.
    pub streams: Vec<Stream>,
    /// Where the value goes.
    pub target: Target,
    /// What is computed.
    pub value: Expr,
    /// Whether elements are addressed by row and column.
    pub grid: bool,
}

/// What is wrong with a loop's text, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FormulaError {
    text: String,
    /// Byte offset of the fault.
    pub at: usize,
    expected: &'static str,
}

impl fmt::Display for FormulaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let caret = self.text[..self.at].chars().count();
        write!(f, "expected {}\n  {}\n  {:caret$}^", self.expected, self.text, "")
    }
}

impl Formula {
    /// Reads a loop's text.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        let mut parser = Parser { text, at: 0, streams: Vec::new(), grid: false };
        let (target, value) = parser.statement()?;
        parser.expect_end()?;
        Ok(Formula { streams: parser.streams, target, value, grid: parser.grid })
    }

    /// Every element read, in the order in which it is computed.
    pub fn loads(&self) -> Vec<Access> {
        fn walk(expr: &Expr, found: &mut Vec<Access>) {
            match expr {
                Expr::Element(access) => found.push(*access),
                Expr::Binary(_, left, right) => {
                    walk(left, found);
                    walk(right, found);
                }
                Expr::Scalar | Expr::Number(_) => {}
            }
        }
        let mut found = Vec::new();
        walk(&self.value, &mut found);
        found
    }

    /// The element written, if one is.
    pub fn store(&self) -> Option<Access> {
        match self.target {
            Target::Element(access) => Some(access),
            Target::Sum | Target::Nothing => None,
        }
    }

    /// Floating-point operations for each element; a fused multiply-add counts as two.
    pub fn flops(&self) -> u32 {
        fn walk(expr: &Expr) -> u32 {
            match expr {
                Expr::Binary(_, left, right) => 1 + walk(left) + walk(right),
                _ => 0,
            }
        }
        walk(&self.value) + u32::from(self.target == Target::Sum)
    }

    /// The rows of streams that one sweep walks along side by side: (stream, rows away). Each needs a pointer.
    pub fn lanes_of_access(&self) -> Vec<(usize, i32)> {
        let mut rows: Vec<_> = self.store().into_iter().chain(self.loads()).map(|a| (a.stream, a.row)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    streams: Vec<Stream>,
    grid: bool,
}

/// Nesting deeper than this is refused, so that no input can exhaust the stack.
const DEEPEST: u32 = 32;

impl Parser<'_> {
    fn error<T>(&self, expected: &'static str) -> Result<T, FormulaError> {
        Err(FormulaError { text: self.text.into(), at: self.at, expected })
    }

    fn rest(&mut self) -> &str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn word(&mut self) -> String {
        let word: String = self.rest().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        self.at += word.len();
        word
    }

    fn expect_end(&mut self) -> Result<(), FormulaError> {
        if self.rest().is_empty() { Ok(()) } else { self.error("an operator or the end") }
    }

    fn statement(&mut self) -> Result<(Target, Expr), FormulaError> {
        let start = self.at;
        let word = self.word();
        if word == "sum" && self.take("+=") {
            return Ok((Target::Sum, self.sum(0)?));
        }
        if !word.is_empty() && self.rest().starts_with('[') {
            let access = self.element(&word)?;
            if self.take("=") {
                // The target is numbered first, so that `a` is stream 0; the value may add loads to it.
                self.streams[access.stream].stored = true;
                return Ok((Target::Element(access), self.sum(0)?));
            }
        }
        self.at = start;
        self.streams.clear();
        Ok((Target::Nothing, self.sum(0)?))
    }

    fn sum(&mut self, depth: u32) -> Result<Expr, FormulaError> {
        let mut left = self.product(depth)?;
        loop {
            let operation = if self.take("+") {
                Operation::Add
            } else if self.take("-") {
                Operation::Subtract
            } else {
                return Ok(left);
            };
            left = Expr::Binary(operation, Box::new(left), Box::new(self.product(depth)?));
        }
    }

    fn product(&mut self, depth: u32) -> Result<Expr, FormulaError> {
        let mut left = self.atom(depth)?;
        while self.take("*") {
            left = Expr::Binary(Operation::Multiply, Box::new(left), Box::new(self.atom(depth)?));
        }
        Ok(left)
    }

    fn atom(&mut self, depth: u32) -> Result<Expr, FormulaError> {
        if depth > DEEPEST {
            return self.error("fewer brackets inside brackets");
        }
        if self.take("(") {
            let inner = self.sum(depth + 1)?;
            return if self.take(")") { Ok(inner) } else { self.error("')'") };
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return self.number();
        }
        let word = self.word();
        if word.is_empty() {
            return self.error("a stream such as b[i], the scalar s, a number or '('");
        }
        if self.rest().starts_with('[') {
            let access = self.element(&word)?;
            self.streams[access.stream].loaded = true;
            return Ok(Expr::Element(access));
        }
        if word == "s" { Ok(Expr::Scalar) } else { self.error("'[i]' after a stream's name") }
    }

    fn number(&mut self) -> Result<Expr, FormulaError> {
        let digits: String = self.rest().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        match digits.parse() {
            Ok(value) => {
                self.at += digits.len();
                Ok(Expr::Number(value))
            }
            Err(_) => self.error("a number such as 0.25"),
        }
    }

    fn element(&mut self, name: &str) -> Result<Access, FormulaError> {
        let first = self.index("j")?;
        let (row, column) = match first {
            Some(row) => {
                self.grid = true;
                match self.index("i")? {
                    None => return self.error("'[i]'"),
                    Some(column) => (row, column),
                }
            }
            None => match self.index("i")? {
                Some(column) => (0, column),
                None => return self.error("'[i]' or '[j][i]'"),
            },
        };
        let stream = self.streams.iter().position(|s| s.name == name).unwrap_or_else(|| {
            self.streams.push(Stream { name: name.into(), loaded: false, stored: false });
            self.streams.len() - 1
        });
        Ok(Access { stream, row, column })
    }

    /// `[i]`, `[i+1]`, `[i-1]`: the offset, or nothing if another letter stands there.
    fn index(&mut self, letter: &str) -> Result<Option<i32>, FormulaError> {
        let start = self.at;
        if !(self.take("[") && self.take(letter)) {
            self.at = start;
            return Ok(None);
        }
        let sign = match (self.take("+"), self.take("-")) {
            (true, _) => 1,
            (_, true) => -1,
            _ => 0,
        };
        let offset = if sign == 0 { 0 } else { self.word().parse::<i16>().unwrap_or(0) };
        if sign != 0 && offset <= 0 {
            return self.error("an offset from 1 to 32767");
        }
        if self.take("]") { Ok(Some(sign * i32::from(offset))) } else { self.error("']'") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    }

    #[test]
    fn a_fault_is_shown_where_it_is() {
        let check = |text: &str, at: usize| assert_eq!(Formula::parse(text).unwrap_err().at, at, "{text}");
        check("a[i] = ", 7);
        check("a[i] = b[k]", 8);
        check("a[i] = b[i] c[i]", 12);
        check("a[i] = (b[i]", 12);
        check("a[i] = t", 8);
        assert_eq!(
            Formula::parse("a[i] = b[i] +").unwrap_err().to_string(),
            "expected a stream such as b[i], the scalar s, a number or '('\n  a[i] = b[i] +\n               ^"
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[abcs0-9ij\\[\\]()+*= .-]{0,60}|.{0,40}") {
            if let Err(error) = Formula::parse(&text) {
                let _ = error.to_string();
            }
        }
    }
}
