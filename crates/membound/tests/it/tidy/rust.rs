//! Rust text without its comments, its literals and its tests.

use std::fs;

use super::root;

/// Rust without its comments and without what stands inside literals; every line stays a line, every byte a byte.
pub fn bare(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let inside = match rest[0] {
            b'/' if rest.starts_with(b"//") => Some((at, at + find(rest, b"\n", 0))),
            b'/' if rest.starts_with(b"/*") => Some((at, at + find(rest, b"*/", 2) + 2)),
            b'"' => {
                let mut end = 1;
                while end < rest.len() && rest[end] != b'"' {
                    end += if rest[end] == b'\\' { 2 } else { 1 };
                }
                Some((at + 1, at + end))
            }
            b'r' if rest.starts_with(b"r\"") || rest.starts_with(b"r#") => {
                let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
                let end = ["\"", &"#".repeat(hashes)].concat();
                let is_string = rest.get(1 + hashes) == Some(&b'"') && !is_word(at.checked_sub(1).map(|i| bytes[i]));
                is_string.then(|| (at + 2 + hashes, at + find(rest, end.as_bytes(), 2 + hashes)))
            }
            // A character, not a lifetime.
            b'\'' if rest.get(1) == Some(&b'\\') => Some((at + 1, at + find(rest, b"'", 3))),
            b'\'' => {
                let width =
                    std::str::from_utf8(&rest[1..]).ok().and_then(|s| s.chars().next()).map_or(0, char::len_utf8);
                (rest.get(1 + width) == Some(&b'\'')).then_some((at + 1, at + 1 + width))
            }
            _ => None,
        };
        let Some((from, to)) = inside else {
            at += 1;
            continue;
        };
        let to = to.min(bytes.len());
        out[from..to].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
        at = if bytes.get(to).is_some_and(|byte| b"\"'".contains(byte)) { to + 1 } else { to };
    }
    String::from_utf8(out).unwrap()
}

fn find(text: &[u8], what: &[u8], from: usize) -> usize {
    let found = text[from.min(text.len())..].windows(what.len()).position(|window| window == what);
    found.map_or(text.len(), |at| from + at)
}

pub fn is_word(byte: Option<u8>) -> bool {
    byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Bare Rust without its tests: `#[cfg(test)]`, or with more conditions, takes away the module or item that follows. A file that another names as
/// a test module is empty.
pub fn shipped(path: &str, text: &str) -> String {
    const TESTS: [&str; 2] = ["#[cfg(test)]", "#[cfg(all(test,"];
    if is_test_module(path) {
        return String::new();
    }
    let mut code = bare(text);
    while let Some((start, head)) = TESTS.iter().find_map(|head| Some((code.find(head)?, head))) {
        let rest = &code[start + head.len()..];
        let end = match (rest.find('{'), rest.find(';')) {
            (Some(brace), semicolon) if semicolon.is_none_or(|semicolon| brace < semicolon) => closing(rest, brace),
            (_, semicolon) => semicolon.unwrap_or(rest.len() - 1),
        };
        let range = start..start + head.len() + end + 1;
        let blank: String = code[range.clone()].chars().map(|c| if c == '\n' { c } else { ' ' }).collect();
        code.replace_range(range, &blank);
    }
    code
}

/// Where the brace at `open` is closed.
pub fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        depth += match byte {
            b'{' => 1,
            b'}' => -1,
            _ => 0,
        };
        if depth == 0 {
            return at;
        }
    }
    code.len() - 1
}

fn is_test_module(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let parent = ["mod.rs", "lib.rs"]
        .map(|file| fs::read_to_string(root().join(folder).join(file)).unwrap_or_default())
        .concat();
    parent.contains(&format!("#[cfg(test)]\nmod {};", name.trim_end_matches(".rs")))
}

/// Places of `what` in bare code, as whole words: (line from 1, code from there on).
pub fn places<'a>(code: &'a str, what: &str) -> Vec<(usize, &'a str)> {
    let starts = code.match_indices(what).map(|(at, _)| at);
    let whole = starts.filter(|&at| {
        let before = at.checked_sub(1).map(|i| code.as_bytes()[i]);
        let starts_word = is_word(what.bytes().next());
        let ends_word = is_word(what.bytes().last());
        let after = code.as_bytes().get(at + what.len()).copied();
        !(starts_word && is_word(before) || ends_word && is_word(after))
    });
    whole.map(|at| (code[..at].matches('\n').count() + 1, &code[at..])).collect()
}

#[test]
fn bare_code_has_no_comments_and_no_text() {
    let check = |text: &str, expect: &str| assert_eq!(bare(text), expect);
    check("a // b\nc", "a     \nc");
    check("/* a */ b", "        b");
    check(r#"f("a\"b", 'c', '\'', b"d")"#, r#"f("    ", ' ', '  ', b" ")"#);
    check("r#\"a\"b\"# + 'x: &'a str", "r#\"   \"# + 'x: &'a str");
    check("'\"' + \"//\"", "' ' + \"  \"");
    assert_eq!(
        shipped("src/none/a.rs", "a\n#[cfg(test)]\nmod t { {} }\nb\n#[cfg(all(test, x = \"y\"))]\nmod u;\nc")
            .split_whitespace()
            .collect::<String>(),
        "abc"
    );
}
