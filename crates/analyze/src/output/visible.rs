//! What leaves this program, so that it does what it looks like. Records, sheets, host names and other processes' names come
//! from elsewhere; on a terminal they must move no cursor, hide no line and turn no text around.

use std::borrow::Cow;
use std::fmt::Write;

use crate::output::terminal::text::{BOLD, DIM};

/// A text in which everything can be seen: control characters (but for line breaks and tabs), marks that change the direction
/// of text or take no room, and tags stand as JSON writes them, `\u001b`, so that a JSON text still says the same. The styles
/// that this program's own tables have pass.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let styles = [BOLD, DIM].map(|style| (style.render().to_string(), style.render_reset().to_string()));
    let styles: Vec<&str> = styles.iter().flat_map(|(on, off)| [on.as_str(), off.as_str()]).collect();
    let mut seen = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        let style = styles.iter().find(|style| rest.starts_with(**style));
        let (taken, left) = rest.split_at(style.map_or(letter.len_utf8(), |style| style.len()));
        if style.is_none() && is_hidden(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                write!(seen, "\\u{unit:04x}").expect("a String takes everything");
            }
        } else {
            seen.push_str(taken);
        }
        rest = left;
    }
    Cow::Owned(seen)
}

/// Whether a character does something instead of being seen.
pub fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => true,
        letter => letter.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_is_shown() {
        let check = |text: &str, expect: &str| assert_eq!(visible(text), expect, "{text:?}");
        check("plain\n\tµs – 95 %", "plain\n\tµs – 95 %");
        check("a\x1b[2Jb\x1b]0;title\x07", "a\\u001b[2Jb\\u001b]0;title\\u0007");
        check("\u{202e}evil\u{9b}2J\r\u{7f}", "\\u202eevil\\u009b2J\\u000d\\u007f");
        check("\u{e0041}", "\\udb40\\udc41");
        check("\x1b[31mred\x1b[8m", "\\u001b[31mred\\u001b[8m");
        let own = format!("{BOLD}head{BOLD:#} and {DIM}note{DIM:#}\n");
        check(&own, &own);
    }

    #[test]
    fn json_says_the_same() {
        let text = "\u{202e}a\u{9b}\u{7f}\u{e0041}\x1b";
        let json = serde_json::to_string(text).unwrap();
        assert!(visible(&json).chars().all(|letter| letter.is_ascii_graphic()));
        assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), text);
    }
}
