//! JSON schemas as tables.

use std::fmt::Write;

use serde_json::Value;

use super::links::anchor;
use super::reference::cell;

/// A field's name, type and meaning, as cells.
pub type Field = (String, String, String);

/// A type in words.
fn kind(value: &Value) -> String {
    if let Some(name) = value["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", anchor(name));
    }
    if let Some(word) = value.get("const") {
        return format!("`{}`", word.as_str().map_or(word.to_string(), String::from));
    }
    if let Some(any) = value["anyOf"].as_array().or_else(|| value["oneOf"].as_array()) {
        return any.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    match &value["type"] {
        Value::String(one) if one == "array" => format!("list of {}", kind(&value["items"])),
        Value::String(one) if one == "object" && value["additionalProperties"].is_object() => {
            format!("map to {}", kind(&value["additionalProperties"]))
        }
        Value::String(one) => one.clone(),
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".into(),
    }
}

fn says(value: &Value) -> String {
    cell(value["description"].as_str().unwrap_or_default())
}

/// The fields of an object.
pub fn fields(object: &Value) -> Vec<Field> {
    let properties = object["properties"].as_object().into_iter().flatten();
    properties.map(|(name, value)| (name.clone(), kind(value), says(value))).collect()
}

/// The fields that all objects have, alike.
pub fn common(objects: &[&Value]) -> Vec<Field> {
    let Some((first, others)) = objects.split_first() else { return Vec::new() };
    let in_most = |field: &Field| others.iter().filter(|one| fields(one).contains(field)).count() + 2 >= objects.len();
    fields(first).into_iter().filter(in_most).collect()
}

/// A table of fields.
pub fn table(fields: &[Field]) -> String {
    let mut text = String::from("| field | type | meaning |\n|---|---|---|\n");
    for (name, kind, says) in fields {
        writeln!(text, "| `{name}` | {kind} | {says} |").unwrap();
    }
    text + "\n"
}

/// A heading and a table for each type that others name.
pub fn definitions(schema: &Value) -> String {
    let mut all: Vec<(&String, &Value)> = schema["$defs"].as_object().into_iter().flatten().collect();
    all.sort_by_key(|(name, _)| *name);
    let mut text = String::new();
    for (name, value) in all {
        writeln!(text, "## {name}\n\n{}\n", says(value)).unwrap();
        text += &definition(value);
    }
    text
}

fn definition(value: &Value) -> String {
    let own = fields(value);
    let mut text = if own.is_empty() { String::new() } else { table(&own) };
    let choices = value["oneOf"].as_array().or_else(|| value["anyOf"].as_array());
    if let Some(choices) = choices {
        text += "| value | meaning |\n|---|---|\n";
        for choice in choices {
            writeln!(text, "| {} | {} |", shape(choice), says(choice)).unwrap();
        }
        text += "\n";
    } else if let Some(words) = value["enum"].as_array() {
        let words: Vec<String> = words.iter().filter_map(|word| Some(format!("`{}`", word.as_str()?))).collect();
        writeln!(text, "One of {}.\n", words.join(", ")).unwrap();
    } else if own.is_empty() {
        writeln!(text, "As JSON: {}.\n", kind(value)).unwrap();
    }
    text
}

/// A choice: its word, or the fields of its object.
fn shape(choice: &Value) -> String {
    let own = fields(choice);
    if own.is_empty() {
        return match choice["enum"].as_array() {
            Some(words) => words
                .iter()
                .map(|word| format!("`{}`", word.as_str().unwrap_or_default()))
                .collect::<Vec<_>>()
                .join(", "),
            None => kind(choice),
        };
    }
    own.iter().map(|(name, kind, _)| format!("`{name}`: {kind}")).collect::<Vec<_>>().join(", ")
}
