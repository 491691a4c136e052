//! A value that may be missing, and then says why.

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

/// Something read from a machine, or the reason why it could not be. In JSON: the bare value, or `{"absent": "why"}`.
///
/// There is no third state: a file that says something impossible is absent, never zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Fact<T> {
    /// Not known.
    Absent {
        /// Why, in words for people.
        #[serde(rename = "absent")]
        reason: String,
    },
    /// Read and understood.
    Known(T),
}

/// By its text: an untagged enum is taken apart into pieces of any type first, with code for each type.
impl<'de, T: DeserializeOwned> Deserialize<'de> for Fact<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Absent {
            absent: String,
        }
        let text = Box::<RawValue>::deserialize(from)?;
        // First, since a struct of optional fields would match anything; a list of one text would match this one.
        let absent = || serde_json::from_str(text.get()).ok().map(|Absent { absent }| Fact::Absent { reason: absent });
        match text.get().starts_with('{').then(absent).flatten() {
            Some(absent) => Ok(absent),
            None => serde_json::from_str(text.get()).map(Fact::Known).map_err(D::Error::custom),
        }
    }
}

impl<T> Fact<T> {
    /// An absent fact.
    pub fn absent(reason: impl Into<String>) -> Self {
        Fact::Absent { reason: reason.into() }
    }

    /// The value, if known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Fact::Known(value) => Some(value),
            Fact::Absent { .. } => None,
        }
    }

    /// Why the value is absent, if it is.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Fact::Known(_) => None,
            Fact::Absent { reason } => Some(reason),
        }
    }

    /// The same fact about a borrowed value.
    pub fn as_ref(&self) -> Fact<&T> {
        match self {
            Fact::Known(value) => Fact::Known(value),
            Fact::Absent { reason } => Fact::absent(reason),
        }
    }

    /// Applies `f` to a known value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Fact<U> {
        self.and_then(|value| Fact::Known(f(value)))
    }

    /// Applies `f`, which may find the value unusable.
    pub fn and_then<U>(self, f: impl FnOnce(T) -> Fact<U>) -> Fact<U> {
        match self {
            Fact::Known(value) => f(value),
            Fact::Absent { reason } => Fact::Absent { reason },
        }
    }

    /// This fact if known, otherwise another source for it. When both are absent the first reason is kept: it names the
    /// place where the fact belongs.
    pub fn or_else(self, f: impl FnOnce() -> Fact<T>) -> Fact<T> {
        match self {
            Fact::Known(_) => self,
            Fact::Absent { .. } => match f() {
                Fact::Known(value) => Fact::Known(value),
                Fact::Absent { .. } => self,
            },
        }
    }

    /// The value, or an absent fact with `reason` for `None`.
    pub fn from_option(value: Option<T>, reason: impl FnOnce() -> String) -> Self {
        value.map_or_else(|| Fact::absent(reason()), Fact::Known)
    }
}

impl<T: Copy> Fact<T> {
    /// A copy of the value, if known.
    pub fn get(&self) -> Option<T> {
        self.known().copied()
    }
}

/// Something that could not be understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unread {
    /// What it is.
    pub what: String,
    /// Why it could not be understood.
    pub reason: String,
}

impl Unread {
    pub(crate) fn note(unread: &mut Vec<Unread>, what: String, reason: String) {
        unread.push(Unread { what, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_the_value_or_the_reason() {
        let check = |fact: Fact<u32>, text: &str| {
            assert_eq!(serde_json::to_string(&fact).unwrap(), text);
            assert_eq!(serde_json::from_str::<Fact<u32>>(text).unwrap(), fact);
        };
        check(Fact::Known(7), "7");
        check(Fact::absent("no file"), r#"{"absent":"no file"}"#);
        let list = Fact::Known(vec!["ondemand".to_owned()]);
        assert_eq!(serde_json::from_str::<Fact<Vec<String>>>(r#"["ondemand"]"#).unwrap(), list);
    }

    #[test]
    fn the_first_reason_is_kept() {
        let both = Fact::<u32>::absent("first").or_else(|| Fact::absent("second"));
        assert_eq!(both.reason(), Some("first"));
        assert_eq!(Fact::absent("first").or_else(|| Fact::Known(1)), Fact::Known(1));
    }
}
