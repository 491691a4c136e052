//! From a loop's text to its tree, or to what is wrong with the text and where.
//!
//! ```text
//! loop      = statement {";" statement} [";"] ["with" ("random" | "sequential") "index"]
//! statement = element ("=" | "+=") sum | name "+=" sum | sum
//! sum       = product {("+" | "-") product}
//! product   = factor {("*" | "/") factor}
//! factor    = "-" factor | "(" sum ")" | number | element | scalar | function "(" sum {"," sum} ")"
//! element   = name "[i]" | name "[i+1]" | name "[j-1][i]" | name "[" element "]"
//! ```
//! Functions are `sqrt`, `abs`, `min`, `max` and `fma`. A name that is not followed by a bracket is a scalar, or with
//! `+=` a sum.

use std::fmt;

use crate::kernel::formula::{Access, Expr, Formula, Function, IndexOrder, Operation, Role, Statement, Stream, Target};

/// What is wrong with a loop's text, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct FormulaError {
    text: String,
    /// Byte offset of the fault.
    pub at: usize,
    fault: String,
}

/// Characters of the text that an error shows before and after the fault.
const SHOWN: usize = 36;

impl fmt::Display for FormulaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let (before, after) = self.text.split_at(self.at);
        let cut = before.chars().count().saturating_sub(SHOWN);
        let head: String = before.chars().skip(cut).map(plain).collect();
        let tail: String = after.chars().take(SHOWN).map(plain).collect();
        let left = if cut > 0 { "..." } else { "" };
        let right = if tail.chars().count() < after.chars().count() { "..." } else { "" };
        let caret = left.len() + head.chars().count();
        write!(f, "{}\n  {left}{head}{tail}{right}\n  {:caret$}^", self.fault, "")
    }
}

/// Bytes of a text. It bounds everything that follows from it.
pub const TEXT_MOST: usize = 400;
/// Streams: as many as there are address registers.
pub const STREAMS_MOST: usize = 9;
/// Sums: each needs partial sums of its own.
pub const SUMS_MOST: usize = 4;
/// Elements that an offset may reach: margins stay small beside streams that fill a first-level cache.
pub const OFFSET_MOST: i32 = 128;
/// Nesting deeper than this is refused, so that no input can exhaust the stack.
const DEEPEST: u32 = 32;

const FUNCTIONS: &str = "sqrt, abs, min, max, fma";

impl Formula {
    /// Reads a loop's text.
    pub fn parse(text: &str) -> Result<Formula, FormulaError> {
        let mut parser = Parser { text, at: 0, mentions: Vec::new(), formula: empty() };
        if text.len() > TEXT_MOST {
            parser.at = (0..=TEXT_MOST).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            return parser.fault(format!("a loop's text has at most {TEXT_MOST} characters"));
        }
        parser.statements()?;
        parser.check()?;
        Ok(parser.formula)
    }
}

fn empty() -> Formula {
    Formula {
        streams: Vec::new(),
        scalars: Vec::new(),
        sums: Vec::new(),
        statements: Vec::new(),
        grid: false,
        order: IndexOrder::Random,
    }
}

/// What an element is mentioned for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Stored,
    Read,
    Index,
    Gathered,
}

impl Use {
    fn role(self) -> Role {
        match self {
            Use::Stored | Use::Read => Role::Values,
            Use::Index => Role::Index,
            Use::Gathered => Role::Gathered,
        }
    }
}

/// An element as it stands in the text.
struct Mention {
    access: Access,
    at: usize,
    by: Use,
    statement: usize,
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    mentions: Vec<Mention>,
    formula: Formula,
}

impl Parser<'_> {
    fn fault<T>(&self, fault: impl Into<String>) -> Result<T, FormulaError> {
        Err(FormulaError { text: self.text.into(), at: self.at, fault: fault.into() })
    }

    fn fault_at<T>(&self, at: usize, fault: impl Into<String>) -> Result<T, FormulaError> {
        Err(FormulaError { text: self.text.into(), at, fault: fault.into() })
    }

    fn expected<T>(&self, what: &str) -> Result<T, FormulaError> {
        self.fault(format!("expected {what}"))
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

    fn demand(&mut self, token: &str) -> Result<(), FormulaError> {
        if self.take(token) { Ok(()) } else { self.expected(&format!("'{token}'")) }
    }

    fn word(&mut self) -> String {
        let word: String = self.rest().chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        self.at += word.len();
        word
    }

    fn name(&mut self) -> String {
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) { String::new() } else { self.word() }
    }

    fn statements(&mut self) -> Result<(), FormulaError> {
        loop {
            let statement = self.statement()?;
            self.formula.statements.push(statement);
            let more = self.take(";");
            if self.rest().is_empty() {
                return Ok(());
            }
            if self.take("with ") {
                return self.order();
            }
            if !more {
                return self.expected("an operator, ';' or the end");
            }
        }
    }

    fn order(&mut self) -> Result<(), FormulaError> {
        self.rest();
        let start = self.at;
        self.formula.order = match self.word().as_str() {
            "random" => IndexOrder::Random,
            "sequential" => IndexOrder::Sequential,
            _ => return self.fault_at(start, "expected 'random index' or 'sequential index'"),
        };
        self.demand("index")?;
        if !self.rest().is_empty() {
            return self.expected("the end");
        }
        if self.formula.gathers() {
            Ok(())
        } else {
            self.fault_at(start, "the loop has no index stream, such as k in b[k[i]]")
        }
    }

    fn statement(&mut self) -> Result<Statement, FormulaError> {
        self.rest();
        let start = self.at;
        let name = self.name();
        if !name.is_empty() && self.rest().starts_with('[') {
            let known = self.formula.streams.len();
            if let Some(access) = self.element(&name, start)?
                && ["=", "+="].iter().any(|sign| self.rest().starts_with(sign))
            {
                return self.assignment(access, start);
            }
            // It was only looked at, and is read as a part of what is loaded.
            self.formula.streams.truncate(known);
        } else if !name.is_empty() && self.take("+=") {
            let (sum, reads) = (self.sum_named(name, start)?, self.mentions.len());
            let value = self.sum(0)?;
            if self.mentions.len() == reads {
                return self.fault_at(start, "what is added to a sum must read a stream");
            }
            return Ok(Statement { target: Target::Sum(sum), value });
        } else if !name.is_empty() && self.rest().starts_with('=') {
            let fault =
                format!("a scalar can't be assigned to; store to an element, {name}[i], or add to a sum with '+='");
            return self.fault_at(start, fault);
        }
        self.at = start;
        let value = self.sum(0)?;
        if self.rest().starts_with('=') || self.rest().starts_with("+=") {
            return self.fault_at(start, "only an element such as a[i] can be stored to");
        }
        Ok(Statement { target: Target::Nothing, value })
    }

    /// What follows a stored element.
    fn assignment(&mut self, access: Access, start: usize) -> Result<Statement, FormulaError> {
        let adds = self.take("+=") || !self.take("=");
        if self.formula.streams[access.stream].stored {
            return self.fault_at(start, "this stream is stored already; a loop stores each stream once");
        }
        self.mention(access, start, Use::Stored);
        if adds {
            self.mention(access, start, Use::Read);
        }
        let value = self.sum(0)?;
        let value = if adds { binary(Operation::Add, Expr::Element(access), value) } else { value };
        Ok(Statement { target: Target::Element(access), value })
    }

    fn sum_named(&mut self, name: String, at: usize) -> Result<usize, FormulaError> {
        if let Some(known) = self.formula.sums.iter().position(|sum| *sum == name) {
            return Ok(known);
        }
        self.check_name(&name, at)?;
        if self.formula.sums.len() == SUMS_MOST {
            return self.fault_at(at, format!("a loop has at most {SUMS_MOST} sums"));
        }
        self.formula.sums.push(name);
        Ok(self.formula.sums.len() - 1)
    }

    fn check_name(&self, name: &str, at: usize) -> Result<(), FormulaError> {
        match name {
            "i" | "j" => self.fault_at(at, format!("{name} counts elements and is no number of the loop")),
            _ if FUNCTIONS.split(", ").any(|function| function == name) => {
                self.fault_at(at, format!("{name} is a function: write {name}(...)"))
            }
            _ => Ok(()),
        }
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
            left = binary(operation, left, self.product(depth)?);
        }
    }

    fn product(&mut self, depth: u32) -> Result<Expr, FormulaError> {
        let mut left = self.factor(depth)?;
        loop {
            let operation = if self.take("*") {
                Operation::Multiply
            } else if self.take("/") {
                Operation::Divide
            } else {
                return Ok(left);
            };
            left = binary(operation, left, self.factor(depth)?);
        }
    }

    fn factor(&mut self, depth: u32) -> Result<Expr, FormulaError> {
        if depth > DEEPEST {
            return self.expected("fewer brackets inside brackets");
        }
        if self.take("-") {
            return Ok(match self.factor(depth + 1)? {
                Expr::Number(number) => Expr::Number(-number),
                operand => Expr::Unary(Function::Negate, Box::new(operand)),
            });
        }
        if self.take("(") {
            let inner = self.sum(depth + 1)?;
            self.demand(")")?;
            return Ok(inner);
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number();
        }
        let start = self.at;
        let name = self.name();
        if name.is_empty() {
            return self.expected("a stream such as b[i], a scalar such as s, a number, a function or '('");
        }
        if self.take("(") {
            return self.function(&name, start, depth + 1);
        }
        if self.rest().starts_with('[') {
            return self.read(&name, start);
        }
        self.check_name(&name, start)?;
        let scalars = &mut self.formula.scalars;
        let scalar = scalars.iter().position(|known| *known == name).unwrap_or_else(|| {
            scalars.push(name);
            scalars.len() - 1
        });
        Ok(Expr::Scalar(scalar))
    }

    fn function(&mut self, name: &str, start: usize, depth: u32) -> Result<Expr, FormulaError> {
        let operands = match name {
            "sqrt" | "abs" => 1,
            "min" | "max" => 2,
            "fma" => 3,
            _ => return self.fault_at(start, format!("unknown function '{name}'; there are {FUNCTIONS}")),
        };
        let mut given = vec![self.sum(depth)?];
        while given.len() < operands {
            self.demand(",")?;
            given.push(self.sum(depth)?);
        }
        self.demand(")")?;
        let mut given = given.into_iter();
        let mut next = || given.next().map_or_else(|| Box::new(Expr::Number(0.0)), Box::new);
        Ok(match name {
            "sqrt" => Expr::Unary(Function::Root, next()),
            "abs" => Expr::Unary(Function::Absolute, next()),
            "min" => Expr::Binary(Operation::Minimum, next(), next()),
            "max" => Expr::Binary(Operation::Maximum, next(), next()),
            _ => Expr::MultiplyAdd(Box::new([*next(), *next(), *next()])),
        })
    }

    fn number(&mut self) -> Result<Expr, FormulaError> {
        let rest = self.rest();
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
        let mut length = digits(rest);
        if rest[length..].starts_with('.') {
            length += 1 + digits(&rest[length + 1..]);
        }
        if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let power = digits(&exponent[sign..]);
            length += if power > 0 { 1 + sign + power } else { 0 };
        }
        match rest[..length].parse::<f64>() {
            Ok(number) if number.is_finite() => {
                self.at += length;
                Ok(Expr::Number(number))
            }
            _ => self.expected("a number such as 0.25 or 1e-3, not too large for a double"),
        }
    }

    /// An element that is read, directly or by an index.
    fn read(&mut self, name: &str, start: usize) -> Result<Expr, FormulaError> {
        if let Some(access) = self.element(name, start)? {
            self.mention(access, start, Use::Read);
            return Ok(Expr::Element(access));
        }
        let stream = self.stream(name, start)?;
        self.demand("[")?;
        self.rest();
        let inner = self.at;
        let index_name = self.name();
        let is_element = !index_name.is_empty() && self.rest().starts_with('[');
        let Some(index) = (if is_element { self.element(&index_name, inner)? } else { None }) else {
            return self.fault_at(inner, "expected 'i', an offset as in 'i+1', or an index such as k[i]");
        };
        self.demand("]")?;
        self.mention(index, inner, Use::Index);
        self.mention(Access { stream, row: 0, column: 0 }, start, Use::Gathered);
        Ok(Expr::Gathered { stream, index })
    }

    /// The element in brackets after a stream's name, or nothing where they hold something else.
    fn element(&mut self, name: &str, start: usize) -> Result<Option<Access>, FormulaError> {
        self.rest();
        let bracket = self.at;
        let row = self.index("j")?;
        let Some(column) = self.index("i")? else {
            let fault =
                format!("j counts rows of a grid; write {name}[j][i], or {name}[i] for an element of a plain array");
            return if row.is_some() { self.fault_at(bracket, fault) } else { Ok(None) };
        };
        if !self.mentions.is_empty() && self.formula.grid != row.is_some() {
            return self.fault_at(start, "all streams must be indexed alike, by [i] or by [j][i]");
        }
        self.formula.grid = row.is_some();
        Ok(Some(Access { stream: self.stream(name, start)?, row: row.unwrap_or(0), column }))
    }

    fn stream(&mut self, name: &str, at: usize) -> Result<usize, FormulaError> {
        let streams = &mut self.formula.streams;
        if let Some(known) = streams.iter().position(|stream| stream.name == name) {
            return Ok(known);
        }
        if streams.len() == STREAMS_MOST {
            let fault = format!("a loop has at most {STREAMS_MOST} streams: one for each address register");
            return self.fault_at(at, fault);
        }
        streams.push(Stream { name: name.into(), role: Role::Values, loaded: false, stored: false });
        Ok(streams.len() - 1)
    }

    fn mention(&mut self, access: Access, at: usize, by: Use) {
        let stream = &mut self.formula.streams[access.stream];
        stream.stored |= by == Use::Stored;
        stream.loaded |= by != Use::Stored;
        stream.role = by.role();
        self.mentions.push(Mention { access, at, by, statement: self.formula.statements.len() });
    }

    /// `[i]`, `[i+1]`, `[i-1]`: the offset, or nothing if another letter stands there.
    fn index(&mut self, letter: &str) -> Result<Option<i32>, FormulaError> {
        let start = self.at;
        if !(self.take("[") && self.word() == letter) {
            self.at = start;
            return Ok(None);
        }
        let sign = if self.take("+") {
            1
        } else if self.take("-") {
            -1
        } else {
            return if self.take("]") { Ok(Some(0)) } else { self.expected("']', '+' or '-'") };
        };
        self.rest();
        let (at, offset) = (self.at, self.word().parse::<i32>().unwrap_or(0));
        if !(1..=OFFSET_MOST).contains(&offset) {
            return self.fault_at(at, format!("expected an offset from 1 to {OFFSET_MOST}"));
        }
        self.demand("]")?;
        Ok(Some(sign * offset))
    }

    /// What can only be seen once all is read.
    fn check(&self) -> Result<(), FormulaError> {
        let formula = &self.formula;
        if formula.streams.is_empty() {
            return self.fault_at(0, "the loop touches no stream, such as b[i]");
        }
        if formula.statements.len() > 1 && formula.statements.iter().any(|s| s.target == Target::Nothing) {
            return self.fault_at(0, "every one of several statements must store, or add to a sum");
        }
        if let Some(name) = formula.scalars.iter().find(|name| formula.sums.contains(name)) {
            return self.fault_at(
                self.place_of(name),
                format!("'{name}' is a sum; it can't be read in the loop that adds to it"),
            );
        }
        self.mentions.iter().try_for_each(|mention| self.check_mention(mention))?;
        // Written out it must be readable again: records name loops by that text.
        let length = formula.to_string().len();
        let fault = format!("written out with blanks the loop has {length} characters; it may have {TEXT_MOST}");
        if length > TEXT_MOST { self.fault_at(0, fault) } else { Ok(()) }
    }

    fn check_mention(&self, read: &Mention) -> Result<(), FormulaError> {
        let stream = &self.formula.streams[read.access.stream];
        let fault = |fault: String| self.fault_at(read.at, fault);
        if read.by.role() != stream.role {
            return fault(format!(
                "'{}' holds numbers in order, numbers to choose from, or indices, and one only",
                stream.name
            ));
        }
        if self.formula.grid && stream.role != Role::Values {
            return fault("index streams go with plain arrays only".into());
        }
        let is_store = |other: &&Mention| other.by == Use::Stored && other.access.stream == read.access.stream;
        match self.mentions.iter().find(is_store) {
            Some(store) if read.access != store.access => fault(format!(
                "'{}' is stored and read at different offsets, so elements depend on each other and can't be computed \
                 side by side; read another stream",
                stream.name
            )),
            Some(store) if read.by == Use::Read && read.statement > store.statement => fault(format!(
                "'{}' was stored by a statement before, so this read would never leave the core; write the value again",
                stream.name
            )),
            _ => Ok(()),
        }
    }

    /// Where a scalar stands: its name, not followed by `+=`.
    fn place_of(&self, name: &str) -> usize {
        let is_whole = |at: usize| {
            let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let (before, after) = (&self.text[..at], &self.text[at + name.len()..]);
            !before.ends_with(part) && !after.starts_with(part) && !after.trim_start().starts_with("+=")
        };
        self.text.match_indices(name).map(|(at, _)| at).find(|&at| is_whole(at)).unwrap_or(0)
    }
}

fn binary(operation: Operation, left: Expr, right: Expr) -> Expr {
    Expr::Binary(operation, Box::new(left), Box::new(right))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fault_is_shown_where_it_is() {
        let check = |text: &str, at: usize, says: &str| {
            let fault = Formula::parse(text).unwrap_err();
            assert!(fault.at == at && fault.fault.contains(says), "{text}\n{} at {}", fault, fault.at);
        };
        check("a[i] = ", 7, "expected a stream");
        check("a[i] = b[k]", 9, "an index such as k[i]");
        check("a[i] = b[i]*c[j]", 13, "write c[j][i], or c[i]");
        check("a = b", 0, "store to an element, a[i]");
        check("a[i] = b[i] c[i]", 12, "an operator");
        check("a[i] = (b[i]", 12, "')'");
        check("a[i] = cos(b[i])", 7, "unknown function 'cos'; there are sqrt, abs");
        check("a[i] = sqrt b[i]", 7, "sqrt is a function");
        check("a[i] = min(b[i])", 15, "','");
        check("a[i] = b[i+129]", 11, "from 1 to 128");
        check("a[i] = b[i-99999999999999999999]", 11, "from 1 to 128");
        check("a[i] = 1e999*b[i]", 7, "too large");
        check("a[i] = b[i+-1]", 11, "expected an offset from 1");
        check("a[i] = a[i-1] + b[i]", 7, "'a' is stored and read at different offsets");
        check("a[i+1] += b[i] + a[i]", 17, "different offsets");
        check("a[i] = b[i]; c[i] = a[i]", 20, "stored by a statement before");
        check("a[i] = b[i]; a[i] = c[i]", 13, "stored already");
        check("s += s*b[i]", 5, "'s' is a sum");
        check("s += 3", 0, "must read a stream");
        check("t = b[i]", 0, "'+='");
        check("3 + s", 0, "touches no stream");
        check("b[k[i]] = c[i]", 0, "only an element such as a[i]");
        check("a[i] = b[k[i]] + b[i]", 7, "one only");
        check("a[i] = b[k[i]] + k[i]", 9, "one only");
        check("k[i] = b[k[i]]", 0, "one only");
        check("a[i] = a[k[i]]", 0, "one only");
        check("a[j][i] = b[k[j][i]]", 12, "plain arrays only");
        check("a[i] = b[j][i]", 7, "indexed alike");
        check("a[i] = i*b[i]", 7, "i counts elements");
        check("b[i]; c[i]", 0, "several statements");
        check("a[i] = b[i] with random index", 17, "no index stream");
        check("a[i] = b[k[i]] with any index", 20, "'random index'");
        check("p[i] = b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i] + k[i] + l[i]", 63, "at most 9 streams");
        check("v += a[i]; w += a[i]; x += a[i]; y += a[i]; z += a[i]", 44, "at most 4 sums");
        check(&format!("a[i] = {}b[i]", "(".repeat(200)), 40, "fewer brackets");
        check(&format!("a[i] = {}b[i]", "-".repeat(200)), 40, "fewer brackets");
        check(&format!("a[i] = b[i]{}", " ".repeat(400)), 400, "at most 400");
    }

    #[test]
    fn a_fault_is_drawn_below_its_place() {
        let fault = |text: &str| Formula::parse(text).unwrap_err().to_string();
        assert_eq!(
            fault("a[i] = b[i] + sin(c[i])"),
            "unknown function 'sin'; there are sqrt, abs, min, max, fma\n  a[i] = b[i] + sin(c[i])\n                ^"
        );
        let long = fault(&format!("a[i] = {}b[i] ! {}", "b[i] + ".repeat(20), "c[i]".repeat(20)));
        let lines: Vec<&str> = long.lines().collect();
        assert!(lines[1].chars().count() <= 80 && lines[1].starts_with("  ...") && lines[1].ends_with("..."), "{long}");
        assert_eq!(lines[1].as_bytes()[lines[2].len() - 1], b'!', "{long}");
    }

    /// Texts that are loops more often than not.
    fn nearly() -> impl Strategy<Value = String> {
        let words = [
            "a[i]", "b[i]", "c[i+1]", "d[i-2]", "e[k[i]]", "s", "t", "2", "0.5", "1e-3", "+", "-", "*", "/", "=", "+=",
            "(", ")", ";", ",", "sqrt(", "min(", "fma(", " ", "[", "]", "j", "i", "with", "index", "é", "\n",
        ];
        prop::collection::vec(prop::sample::select(words.to_vec()), 0..40).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "[abcs0-9ij\\[\\]()+*/=;,.e -]{0,60}|.{0,40}|[(\\[-]{0,500}") {
            if let Err(error) = Formula::parse(&text) {
                prop_assert!(text.is_char_boundary(error.at));
                let _ = error.to_string();
            }
        }

        #[test]
        fn what_is_written_is_read_as_the_same_loop(text in nearly()) {
            match Formula::parse(&format!("a[i] = {text}")).or_else(|_| Formula::parse(&text)) {
                Ok(formula) => {
                    let written = formula.to_string();
                    let again = Formula::parse(&written);
                    prop_assert_eq!(again.as_ref().map(ToString::to_string), Ok(written));
                    prop_assert_eq!(again, Ok(formula));
                }
                Err(error) => prop_assert!(text.is_char_boundary(error.at)),
            }
        }
    }
}
