//! Values as JSON. What is written goes through text each time: serde writes code for each type and each form, and one form
//! for all of them is a tenth of the program.

use serde::Serialize;
use serde_json::Value;

/// In one line. All that is written here has strings for keys and writes whatever it holds: it can't fail.
pub fn text(what: &impl Serialize) -> String {
    serde_json::to_string(what).expect("keys are strings")
}

/// As a value that can be looked into.
pub fn value(what: &impl Serialize) -> Value {
    parsed(&text(what))
}

/// Over several lines, for people.
pub fn pretty(what: &impl Serialize) -> String {
    lines(&value(what))
}

/// Of a text that was written here.
pub fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("it was written as JSON")
}

fn lines(value: &Value) -> String {
    serde_json::to_string_pretty(value).expect("keys are strings")
}
