//! The tests' own validator: each word of a schema by a value that keeps it and one that breaks it.

use crate::schema::Validator;
use serde_json::{Value, json};

/// A schema, what fits it, and what does not, with the fault that is told.
fn cases() -> Vec<(Value, Value, Value, &'static str)> {
    let named =
        json!({"$defs": {"size": {"type": "integer", "minimum": 1}}, "properties": {"a": {"$ref": "#/$defs/size"}}});
    let either = json!([{"const": "load"}, {"type": "string", "enum": ["copy", "load"]}]);
    vec![
        (json!({"type": "integer"}), json!(2.0), json!(2.5), "2.5: type \"integer\""),
        (json!({"type": ["string", "null"]}), json!(null), json!(3), "3: type [\"string\",\"null\"]"),
        (json!({"type": "number"}), json!(1), json!("1"), "\"1\": type \"number\""),
        (json!({"type": "boolean"}), json!(true), json!(0), "0: type \"boolean\""),
        (json!({"type": "array"}), json!([]), json!({}), "{}: type \"array\""),
        (json!({"const": "load"}), json!("load"), json!("copy"), "\"copy\": const \"load\""),
        (json!({"enum": [1, "x"]}), json!("x"), json!(2), "2: enum [1,\"x\"]"),
        (json!({"minimum": 2}), json!(2), json!(1.9), "1.9: minimum 2"),
        (json!({"maximum": 2}), json!("no number"), json!(3), "3: maximum 2"),
        (json!({"minItems": 1}), json!([1]), json!([]), "[]: minItems 1"),
        (json!({"maxItems": 1}), json!([1]), json!([1, 2]), "[1,2]: maxItems 1"),
        (json!({"required": ["a"]}), json!({"a": null}), json!({"b": 1}), "{\"b\":1}: required [\"a\"]"),
        (named, json!({"a": 1, "b": "any"}), json!({"a": 0}), "a: 0: minimum 1"),
        (
            json!({"properties": {"a": true}, "additionalProperties": false}),
            json!({"a": 1}),
            json!({"b": 1}),
            "b: 1 must",
        ),
        (json!({"additionalProperties": {"type": "string"}}), json!({"a": "x"}), json!({"a": 1}), "a: 1: type"),
        (json!({"items": {"type": "string"}}), json!(["a", "b"]), json!(["a", 1]), "1: 1: type \"string\""),
        (
            json!({"prefixItems": [{"type": "string"}, true], "items": false}),
            json!(["a", 1]),
            json!(["a", 1, 2]),
            "2: 2 must",
        ),
        (json!({"prefixItems": [{"type": "string"}]}), json!([]), json!([1]), "0: 1: type \"string\""),
        (json!({"anyOf": either}), json!("load"), json!("triad"), "\"triad\": anyOf"),
        (json!({"oneOf": either}), json!("copy"), json!("load"), "\"load\": oneOf"),
    ]
}

#[test]
fn what_a_schema_asks_for_is_held() {
    for (schema, good, bad, fault) in cases() {
        let validator = Validator::of(&schema).unwrap();
        assert_eq!(validator.fault(&good), None, "{schema}");
        let found = validator.fault(&bad).unwrap_or_else(|| panic!("{schema} takes {bad}"));
        assert!(found.starts_with(fault) && !validator.is_valid(&bad), "{schema}: {found}");
    }
}

#[test]
fn a_schema_that_says_what_is_not_known_is_refused() {
    let refused = |schema: Value| Validator::of(&schema).err();
    assert_eq!(refused(json!({"items": {"pattern": "x"}})).unwrap(), "pattern is no word that is known here");
    assert_eq!(refused(json!({"oneOf": [{"$ref": "#/$defs/none"}]})).unwrap(), "\"#/$defs/none\" leads nowhere");
    assert_eq!(refused(json!({"properties": {"a": 3}})).unwrap(), "no schema: 3");
    assert_eq!(refused(json!({"$defs": {"a": {"title": "x", "default": 1}}, "format": "uint8"})), None);
}
