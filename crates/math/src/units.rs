//! Quantities with their units, and the only place where numbers are parsed from or formatted for people.
//!
//! Sizes use binary prefixes (KiB = 1024), rates decimal ones (GB/s = 1e9), as the field does: STREAM's MB/s is
//! 1e6 bytes a second, while a "32 MiB cache" is 32 * 1024 * 1024 bytes.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

use humantime::format_rfc3339_seconds;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An enum whose variants are words: on the command line, in records and in tables.
#[macro_export]
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            ::serde::Serialize, ::serde::Deserialize, ::schemars::JsonSchema)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// All of them, in the order in which they are shown.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word used on the command line and in records.
            pub fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl $crate::units::Word for $name {
            fn words() -> Vec<&'static str> {
                Self::ALL.iter().map(|word| word.word()).collect()
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::units::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::units::UnknownWord> {
                Self::ALL.iter().copied().find(|w| w.word() == text).ok_or_else(|| $crate::units::UnknownWord {
                    text: text.into(),
                    what: $what,
                    known: <Self as $crate::units::Word>::words().join(", "),
                })
            }
        }
    };
}

pub use words;

/// One of a list of words.
pub trait Word: Copy + FromStr<Err = UnknownWord> + Send + Sync + 'static {
    /// All of the list, in the order in which they are shown.
    fn words() -> Vec<&'static str>;
}

/// A word that is none of a list's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} '{text}'; use one of: {known}")]
pub struct UnknownWord {
    /// The word.
    pub text: String,
    /// What it should have named.
    pub what: &'static str,
    /// The words there are.
    pub known: String,
}

/// Bytes of a cache line.
pub const LINE: u64 = 64;

/// Bytes of a base page, in which work on pages is counted whatever the pages obtained.
pub const BASE_PAGE: u64 = 4096;

/// Bytes of a transparent huge page where base pages have 4 KiB.
pub const HUGE_PAGE_USUAL: Bytes = Bytes::mib(2);

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Nanoseconds(pub f64);

/// A frequency in cycles per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Hertz(pub f64);

/// A rate in bytes per second.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct BytesPerSecond(pub f64);

impl Bytes {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Bytes(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Bytes(n << 20)
    }

    /// `n` GiB.
    pub const fn gib(n: u64) -> Self {
        Bytes(n << 30)
    }
}

const BINARY: [(&str, u64); 5] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const DECIMAL: [(&str, f64); 5] = [("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)];

/// `value` with three significant digits, and all those before the point, without an exponent: `57.3`, `0.330`, `1237`. There are at
/// most six after the point.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "n/a".into();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = (2 - magnitude).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    // 9.999 rounds up to one digit more than was asked for: 10.00.
    match text.parse::<f64>() {
        Ok(rounded) if decimals > 0 && rounded != 0.0 && rounded.abs().log10().floor() as i32 > magnitude => {
            format!("{value:.0$}", decimals - 1)
        }
        _ => text,
    }
}

/// A whole number of things: `22`; from ten thousand on by the hundred, `12300`, and from a million on with three digits, `4.57e6`.
pub fn count(number: f64) -> String {
    match number {
        n if n.abs() < 1e4 => format!("{n:.0}"),
        n if n.abs() < 1e6 => format!("{:.0}", (n / 100.0).round() * 100.0),
        n => format!("{n:.2e}"),
    }
}

/// So many of a thing: `1 case`, `2 cases`.
pub fn counted<N: fmt::Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    format!("{count} {noun}{}", if count == N::from(1) { "" } else { "s" })
}

/// A share of one in percent, short: `0.7%`, `12%`; below a twentieth of a percent `<0.1%`.
pub fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        p if !p.is_finite() => "n/a".into(),
        0.0 => "0%".into(),
        p if p < 0.05 => "<0.1%".into(),
        p if p < 9.95 => format!("{percent:.1}%"),
        _ => format!("{percent:.0}%"),
    }
}

/// Seconds since 1970 as `2025-11-21 07:13 UTC`.
pub fn utc(unix_s: u64) -> String {
    let second = utc_second(unix_s);
    format!("{} {} UTC", &second[..10], &second[11..16])
}

/// An instant to the second: `2024-01-31T23:59:58Z`. The last one that has a date is the end of the year 9999.
pub fn utc_second(unix_s: u64) -> String {
    const LAST_S: u64 = 253_402_300_799;
    format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_S))).to_string()
}

/// A time as it stands in file names: `20261121T074100Z`.
pub fn utc_compact(unix_s: u64) -> String {
    utc_second(unix_s).replace(['-', ':'], "")
}

fn decimal(f: &mut fmt::Formatter<'_>, value: f64, unit: &str) -> fmt::Result {
    let (prefix, scale) = DECIMAL.iter().find(|(_, scale)| value.abs() >= *scale).unwrap_or(&DECIMAL[4]);
    f.pad(&format!("{} {prefix}{unit}", significant(value / scale)))
}

impl fmt::Display for Bytes {
    /// The largest binary unit that leaves at least 1, with three significant digits: `24 KiB`, `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = BINARY.iter().find(|(_, scale)| self.0 >= *scale).unwrap_or(&BINARY[4]);
        let text = if self.0.is_multiple_of(*scale) {
            (self.0 / scale).to_string()
        } else {
            significant(self.0 as f64 / *scale as f64)
        };
        f.pad(&format!("{text} {unit}"))
    }
}

impl fmt::Display for BytesPerSecond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, "B/s")
    }
}

impl fmt::Display for Hertz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        decimal(f, self.0, "Hz")
    }
}

impl fmt::Display for Nanoseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0.abs() {
            ns if ns >= 1e9 => (self.0 / 1e9, "s"),
            ns if ns >= 1e6 => (self.0 / 1e6, "ms"),
            ns if ns >= 1e3 => (self.0 / 1e3, "us"),
            _ => (self.0, "ns"),
        };
        f.pad(&format!("{} {unit}", significant(value)))
    }
}

/// A quantity that could not be read; its text says what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not a size.
    #[error("'{0}' is not a size; write a number with B, KiB, MiB or GiB, such as 24KiB or 1.5GiB")]
    Size(String),
    /// A rate in bits.
    #[error("'{0}' is in bits a second; write it in bytes, such as 90GB/s: b is a bit, B is a byte")]
    BitRate(String),
    /// Not a rate.
    #[error("'{0}' is not a rate; write a number with MB/s, GB/s or GiB/s, such as 90GB/s")]
    Rate(String),
    /// Not a frequency.
    #[error("'{0}' is not a frequency; write a number with MHz or GHz, such as 1.5GHz")]
    Frequency(String),
    /// Not a duration.
    #[error("'{0}' is not a duration; write numbers with h, min, s or ms, such as 30s or 1h30m")]
    Duration(String),
    /// Less than no time.
    #[error("'{0}' is less than no time; give a positive one, such as 30s")]
    NegativeDuration(String),
    /// Longer than anybody waits.
    #[error("'{0}' is longer than a year; give less, such as 10min")]
    TooLong(String),
}

fn number_and_unit(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    Some((number, text[end..].trim()))
}

impl FromStr for Bytes {
    type Err = ParseError;

    /// `24KiB`, `24k`, `1.5 GiB`, `4096`; `MB` and `GB` are decimal, single letters binary as in `numactl` and `dd`.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Size(text.into());
        let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
        let scale: f64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1048576.0,
            "g" | "gib" => 1073741824.0,
            "t" | "tib" => 1099511627776.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => return Err(wrong()),
        };
        let bytes = (number * scale).round();
        if bytes < u64::MAX as f64 { Ok(Bytes(bytes as u64)) } else { Err(wrong()) }
    }
}

impl FromStr for BytesPerSecond {
    type Err = ParseError;

    /// `90GB/s`, `90 GiB/s`; a size without `/s` is no rate, and `90Gb/s` one in bits.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Rate(text.into());
        let size = text.trim().strip_suffix("/s").ok_or_else(wrong)?;
        let is_scaled = size.contains(|c: char| c.is_ascii_uppercase());
        if is_scaled && size.ends_with('b') {
            return Err(ParseError::BitRate(text.into()));
        }
        size.parse::<Bytes>().map(|bytes| BytesPerSecond(bytes.0 as f64)).map_err(|_| wrong())
    }
}

impl FromStr for Hertz {
    type Err = ParseError;

    /// `1.5GHz`, `800 MHz`, `2100000000Hz`; a bare number is no frequency.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = || ParseError::Frequency(text.into());
        let (number, unit) = number_and_unit(text).ok_or_else(wrong)?;
        let scale = match unit.to_ascii_lowercase().as_str() {
            "hz" => 1.0,
            "khz" => 1e3,
            "mhz" => 1e6,
            "ghz" => 1e9,
            _ => return Err(wrong()),
        };
        let hz = number * scale;
        if hz > 0.0 && hz.is_finite() { Ok(Hertz(hz)) } else { Err(wrong()) }
    }
}

/// Parses `30s`, `500ms`, `2min`, `1h30m`; a bare number means seconds.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    let wrong = || ParseError::Duration(text.into());
    if text.trim_start().strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Err(ParseError::NegativeDuration(text.into()));
    }
    let mut seconds = 0.0;
    let (mut rest, mut last) = (text.trim(), f64::INFINITY);
    while !rest.is_empty() {
        // A number with its unit; the next number begins the next part.
        let unit = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let end = rest[unit..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| unit + at);
        let (number, unit) = number_and_unit(&rest[..end]).ok_or_else(wrong)?;
        let scale = match unit {
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        // Large units first, each once; what a number means that follows them, nobody knows.
        if scale >= last || unit.is_empty() && last.is_finite() {
            return Err(wrong());
        }
        (seconds, last, rest) = (seconds + number * scale, scale, rest[end..].trim_start());
    }
    if last.is_infinite() {
        return Err(wrong());
    }
    /// A year: what is added to a clock must not overflow it.
    const MOST: Duration = Duration::from_secs(365 * 86_400);
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    if time <= MOST { Ok(time) } else { Err(ParseError::TooLong(text.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frequencies_are_parsed() {
        let check = |text: &str, hz: f64| assert_eq!(text.parse(), Ok(Hertz(hz)), "{text}");
        check("1.5GHz", 1.5e9);
        check("800 MHz", 8e8);
        check("50hz", 50.0);
        for text in ["", "1.5", "0GHz", "-1GHz", "3 parsecs", "GHz"] {
            assert!(text.parse::<Hertz>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_parsed() {
        let check = |text: &str, expect: u64| assert_eq!(text.parse(), Ok(Bytes(expect)), "{text}");
        check("24KiB", 24 * 1024);
        check("24k", 24 * 1024);
        check("4096", 4096);
        check("1.5 GiB", 3 << 29);
        check("1MB", 1_000_000);
        check("0", 0);
        check("2t", 2 << 40);
        for text in ["", "KiB", "12 parsecs", "-1", "1e400", "..", "99999999999TiB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_parsed() {
        let check = |text: &str, expect: f64| assert_eq!(text.parse(), Ok(BytesPerSecond(expect)), "{text}");
        check("90GB/s", 90e9);
        check("1.5 GiB/s", 1.5 * 1073741824.0);
        check("400g/s", 400.0 * 1073741824.0);
        for text in ["", "/s", "90GB", "90GB/h", "fast/s"] {
            let error = text.parse::<BytesPerSecond>().unwrap_err();
            assert!(error.to_string().contains("such as 90GB/s"), "{error}");
        }
    }

    #[test]
    fn quantities_are_written() {
        assert_eq!(Bytes::kib(24).to_string(), "24 KiB");
        assert_eq!(Bytes(1).to_string(), "1 B");
        assert_eq!(Bytes(3 << 29).to_string(), "1.50 GiB");
        assert_eq!(BytesPerSecond(57.34e9).to_string(), "57.3 GB/s");
        assert_eq!(BytesPerSecond(0.33e9).to_string(), "330 MB/s");
        assert_eq!(BytesPerSecond(1.234e12).to_string(), "1.23 TB/s");
        assert_eq!(Hertz(3.7e9).to_string(), "3.70 GHz");
        assert_eq!(Nanoseconds(95.04).to_string(), "95.0 ns");
        assert_eq!(Nanoseconds(22e6).to_string(), "22.0 ms");
        assert_eq!(significant(9.999), "10.0");
        assert_eq!(significant(0.0), "0.00");
        assert_eq!(significant(f64::NAN), "n/a");
    }

    #[test]
    fn shares_and_dates_are_written() {
        for (share, text) in [(0.0, "0%"), (0.0004, "<0.1%"), (0.007, "0.7%"), (0.0995, "10%"), (-0.123, "-12%")] {
            assert_eq!(percent(share), text);
        }
        assert_eq!(percent(f64::NAN), "n/a");
        assert_eq!(utc(0), "1970-01-01 00:00 UTC");
        assert_eq!(utc_compact(951_782_461), "20000229T000101Z");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(utc(1_763_709_239), "2025-11-21 07:13 UTC");
        assert_eq!(utc(4_102_444_799), "2099-12-31 23:59 UTC");
        assert_eq!(utc(u64::MAX), "9999-12-31 23:59 UTC", "a header may say anything");
    }

    #[test]
    fn durations_are_parsed() {
        assert_eq!(parse_duration("30s").unwrap().as_secs(), 30);
        assert_eq!(parse_duration("500ms").unwrap().as_millis(), 500);
        assert_eq!(parse_duration("2min").unwrap().as_secs(), 120);
        for (text, seconds) in [("1h30m", 5400), ("1h 2min 3s", 3723), ("90", 90), ("1m500ms", 60)] {
            assert_eq!(parse_duration(text).unwrap().as_secs(), seconds, "{text}");
        }
        for text in ["soon", "", " ", "30m1h", "1h2h", "1h30", "s", "1h-3m"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        assert_eq!(parse_duration("8760h").unwrap().as_secs(), 365 * 86_400);
        assert!(parse_duration("5e18s").is_err());
        assert!(parse_duration("-3s").unwrap_err().to_string().contains("give a positive one"));
        assert!(parse_duration("5000000000000000000").unwrap_err().to_string().contains("longer than a year"));
    }

    proptest! {
        #[test]
        fn a_written_size_is_read_back(n in 0u64..1 << 20, shift in 0u32..4) {
            let bytes = Bytes(n << (10 * shift));
            let back: Bytes = bytes.to_string().parse().unwrap();
            // Three digits are written, so half a unit in the third may be lost.
            prop_assert!(back.0.abs_diff(bytes.0) as f64 <= 0.006 * bytes.0 as f64);
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in ".{0,40}") {
            let _ = text.parse::<Bytes>();
            let _ = parse_duration(&text);
        }
    }
}
