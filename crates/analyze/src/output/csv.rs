//! Rows as CSV: the JSON row, flattened. An object's fields are columns of their own (`payload_Bps_median`), an interval is
//! two (`_ci95_low`, `_ci95_high`), a ratio with its interval is three; other lists are joined by spaces, what their
//! objects hold by colons; absent values are empty. A text that a spreadsheet would take for a formula (it begins with =, +, -
//! or @) has an apostrophe before it. Which columns there are the row's schema says, so that a column is
//! there though no row has a value for it.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::across::check::Checkup;
use crate::across::compare::comparison::Comparison;
use crate::across::fleet::rows::ScreenRow;
use crate::row::AnyRow;
use membound_core::in_order::grouped;
use membound_core::json::{parsed, value};

/// All rows under one line of names: those of the metrics that occur; what a metric lacks is empty.
pub fn rows(rows: &[&dyn AnyRow]) -> String {
    let mut columns = vec![Column { name: "metric".into(), path: vec![Step::Field("metric".into())] }];
    for (_, of_metric) in grouped(rows, |row| row.metric()) {
        add_columns(&mut columns, |generator| of_metric[0].schema(generator));
    }
    table(&columns, rows.iter().map(|row| parsed(&row.json())))
}

/// The cells of a comparison, those of one side last.
pub fn comparison(comparison: &Comparison) -> String {
    alike(comparison.all())
}

/// The figures of a check.
pub fn check(checkup: &Checkup) -> String {
    alike(checkup.rows.iter())
}

/// What screening a fleet found.
pub fn fleet(rows: &[ScreenRow]) -> String {
    alike(rows.iter())
}

/// Rows that all have the same columns.
fn alike<'a, R: Serialize + JsonSchema + 'a>(rows: impl Iterator<Item = &'a R>) -> String {
    let mut columns = Vec::new();
    add_columns(&mut columns, R::json_schema);
    table(&columns, rows.map(value))
}

fn table(columns: &[Column], rows: impl Iterator<Item = Value>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|column| &column.name)).expect("a Vec takes everything");
    for row in rows {
        writer.write_record(columns.iter().map(|column| column.cell(&row))).expect("a Vec takes everything");
    }
    let bytes = writer.into_inner().expect("a Vec takes everything");
    String::from_utf8(bytes).expect("strings make a string")
}

/// A column, and where its values stand in a row.
#[derive(Debug, Clone)]
struct Column {
    name: String,
    path: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Field(String),
    Place(usize),
}

impl Column {
    /// Further in, with so much more of a name.
    fn inner(&self, step: Step, name: &str) -> Column {
        let name = if self.name.is_empty() { name.into() } else { format!("{}_{name}", self.name) };
        Column { name, path: self.path.iter().cloned().chain([step]).collect() }
    }

    fn cell(&self, row: &Value) -> String {
        let value = self.path.iter().try_fold(row, |value, step| match step {
            Step::Field(name) => value.get(name),
            Step::Place(index) => value.get(index),
        });
        // Where a word or an object may stand, the object has columns of its own.
        let value = value.filter(|value| !value.is_object());
        let cell = value.map_or_else(String::new, |value| text(value, " "));
        if value.is_some_and(|value| !value.is_number()) && is_formula(&cell) { format!("'{cell}") } else { cell }
    }
}

/// Whether a spreadsheet would work a text out instead of showing it.
fn is_formula(cell: &str) -> bool {
    cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && cell.parse::<f64>().is_err()
}

fn text(value: &Value, between: &str) -> String {
    let joined =
        |values: &mut dyn Iterator<Item = &Value>| values.map(|v| text(v, ":")).collect::<Vec<_>>().join(between);
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => joined(&mut values.iter()),
        Value::Object(fields) => joined(&mut fields.values()),
        // Without the `.0` that JSON gives to a real number.
        Value::Number(number) if number.is_f64() => number.as_f64().unwrap_or(f64::NAN).to_string(),
        other => other.to_string(),
    }
}

/// Adds the columns of a kind of row that are not there yet.
fn add_columns(all: &mut Vec<Column>, schema: impl FnOnce(&mut SchemaGenerator) -> Schema) {
    let mut generator = SchemaGenerator::default();
    let schema = schema(&mut generator).to_value();
    let definitions = generator.take_definitions(true);
    columns_of(&schema, &definitions, &Column { name: String::new(), path: Vec::new() }, all);
}

/// Adds the columns that a value of this schema has.
fn columns_of(schema: &Value, definitions: &Map<String, Value>, column: &Column, all: &mut Vec<Column>) {
    let mut is_leaf = schema["type"] != "null";
    if let Some(named) = schema["$ref"].as_str().and_then(|path| definitions.get(path.rsplit('/').next()?)) {
        columns_of(named, definitions, column, all);
        is_leaf = false;
    }
    for alternatives in ["anyOf", "oneOf", "allOf"].iter().filter_map(|word| schema[*word].as_array()) {
        alternatives.iter().for_each(|alternative| columns_of(alternative, definitions, column, all));
        is_leaf = false;
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        columns_of(field, definitions, &column.inner(Step::Field(name.clone()), name), all);
        is_leaf = false;
    }
    let length = schema["maxItems"].as_u64().filter(|_| schema["maxItems"] == schema["minItems"]);
    let ends = |first: usize, prefix: &str| {
        ["low", "high"]
            .map(|end| column.inner(Step::Place(first + usize::from(end == "high")), &format!("{prefix}{end}")))
    };
    let columns = match length {
        _ if !is_leaf => Vec::new(),
        Some(2) if column.name.ends_with("ci95") => ends(0, "").into(),
        Some(3) if schema["items"]["type"] == "number" => {
            let value = Column { name: column.name.clone(), ..column.inner(Step::Place(0), "") };
            std::iter::once(value).chain(ends(1, "ci95_")).collect()
        }
        _ => vec![column.clone()],
    };
    for column in columns {
        if !all.iter().any(|known| known.name == column.name) {
            all.push(column);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_a_formula() {
        let column = Column { name: "a".into(), path: vec![Step::Field("a".into())] };
        let check = |value: Value, expect: &str| assert_eq!(column.cell(&serde_json::json!({ "a": value })), expect);
        check("=HYPERLINK(\"http://x\")".into(), "'=HYPERLINK(\"http://x\")");
        check("@SUM(A1)".into(), "'@SUM(A1)");
        check("+1+cmd|' /C calc'!A0".into(), "'+1+cmd|' /C calc'!A0");
        check("-x".into(), "'-x");
        check(serde_json::json!(["=a", "b"]), "'=a b");
        check((-1.5).into(), "-1.5");
        check("-3".into(), "-3");
        check("plain = text".into(), "plain = text");
    }
}
