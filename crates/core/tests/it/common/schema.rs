//! Whether JSON fits a schema: of the language of schemas (2020-12) what ours use. A schema with another word is refused.

use serde_json::{Map, Value};

/// A schema, all words of which are known and all references of which lead somewhere.
pub struct Validator(Value);

impl Validator {
    pub fn of(schema: &Value) -> Result<Validator, String> {
        let validator = Validator(schema.clone());
        validator.check(schema)?;
        Ok(validator)
    }

    pub fn is_valid(&self, value: &Value) -> bool {
        self.fault(value).is_none()
    }

    /// The first thing that does not fit, and where.
    pub fn fault(&self, value: &Value) -> Option<String> {
        self.misfit(&self.0, value)
    }

    fn target(&self, reference: &Value) -> Option<&Value> {
        self.0.pointer(reference.as_str()?.strip_prefix('#')?)
    }

    fn check(&self, schema: &Value) -> Result<(), String> {
        let Value::Object(rules) = schema else {
            return if schema.is_boolean() { Ok(()) } else { Err(format!("no schema: {schema}")) };
        };
        for (word, rule) in rules {
            match word.as_str() {
                "$schema" | "title" | "description" | "default" | "format" | "const" => {}
                "type" | "enum" | "required" | "minimum" | "maximum" | "minItems" | "maxItems" => {}
                "$ref" => _ = self.target(rule).ok_or_else(|| format!("{rule} leads nowhere"))?,
                "items" | "additionalProperties" => self.check(rule)?,
                "$defs" | "properties" => {
                    rule.as_object().into_iter().flatten().try_for_each(|(_, of)| self.check(of))?
                }
                "anyOf" | "oneOf" | "prefixItems" => list(rule).iter().try_for_each(|of| self.check(of))?,
                other => return Err(format!("{other} is no word that is known here")),
            }
        }
        Ok(())
    }

    fn misfit(&self, schema: &Value, value: &Value) -> Option<String> {
        match schema {
            Value::Bool(false) => Some(format!("{value} must not be there")),
            Value::Object(rules) => rules.iter().find_map(|(word, rule)| self.broken(word, rule, rules, value)),
            _ => None,
        }
    }

    /// What breaks one rule of a schema.
    fn broken(&self, word: &str, rule: &Value, rules: &Map<String, Value>, value: &Value) -> Option<String> {
        let unless = |holds: bool| (!holds).then(|| format!("{value}: {word} {rule}"));
        let fits = |schema: &Value| self.misfit(schema, value).is_none();
        let number = |compare: fn(&f64, &f64) -> bool| {
            unless(value.as_f64().zip(rule.as_f64()).is_none_or(|(value, rule)| compare(&value, &rule)))
        };
        match word {
            "$ref" => self.target(rule).and_then(|schema| self.misfit(schema, value)),
            "type" => unless(list(rule).iter().any(|name| is_of_type(value, name))),
            "const" => unless(value == rule),
            "enum" => unless(list(rule).contains(value)),
            "minimum" => number(f64::ge),
            "maximum" => number(f64::le),
            "minItems" => unless(value.as_array().is_none_or(|all| all.len() as u64 >= rule.as_u64().unwrap_or(0))),
            "maxItems" => unless(value.as_array().is_none_or(|all| all.len() as u64 <= rule.as_u64().unwrap_or(0))),
            "required" => unless(value.as_object().is_none_or(|all| list(rule).iter().all(|name| has(all, name)))),
            "anyOf" => unless(list(rule).iter().any(fits)),
            "oneOf" => unless(list(rule).iter().filter(|schema| fits(schema)).count() == 1),
            "properties" => self.first(members(value), |name| rule.get(name)),
            "additionalProperties" => {
                let known = |name: &str| rules.get("properties").is_some_and(|all| all.get(name).is_some());
                self.first(members(value), |name| (!known(name)).then_some(rule))
            }
            "prefixItems" => self.first(elements(value), |at| list(rule).get(at)),
            "items" => {
                let first = rules.get("prefixItems").map_or(0, |all| list(all).len());
                self.first(elements(value), |at| (at >= first).then_some(rule))
            }
            _ => None,
        }
    }

    /// The first part of a value that does not fit the schema that it has, if it has one.
    fn first<'a, N: Copy + std::fmt::Display>(
        &self,
        mut parts: impl Iterator<Item = (N, &'a Value)>,
        schema: impl Fn(N) -> Option<&'a Value>,
    ) -> Option<String> {
        parts.find_map(|(name, part)| Some(format!("{name}: {}", self.misfit(schema(name)?, part)?)))
    }
}

/// A list, or one thing as a list of it.
fn list(rule: &Value) -> &[Value] {
    rule.as_array().map_or(std::slice::from_ref(rule), Vec::as_slice)
}

fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flatten().map(|(name, part)| (name.as_str(), part))
}

fn elements(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

fn has(members: &Map<String, Value>, name: &Value) -> bool {
    name.as_str().is_some_and(|name| members.contains_key(name))
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("number") => value.is_number(),
        Some("integer") => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        _ => false,
    }
}
