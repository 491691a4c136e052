//! The file for Prometheus: it replaces its older self, and nothing else.

use std::io::Read;
use std::path::Path;

use crate::cli::args::is_same;
use crate::cli::usage::usage;
use membound_analyze::output::prometheus;
use membound_core::input;

/// Refuses a file that the command uses for something else, or that holds something else: it would be overwritten. What can't be
/// looked at is left to whoever writes.
pub(crate) fn refuse_other(path: &Path, others: &[(&str, Option<&Path>)]) -> anyhow::Result<()> {
    let mut others = others.iter().filter_map(|(flag, other)| Some((flag, (*other)?)));
    let why = match holds_another(path) {
        true => "holds something else than membound's metrics, and only those are replaced".into(),
        false => match others.find(|(_, other)| is_same(path, other)) {
            Some((flag, _)) => format!("is the file of {flag}, too"),
            None => return Ok(()),
        },
    };
    Err(usage(format!("{} {why}; choose another file with --prometheus", path.display())))
}

fn holds_another(path: &Path) -> bool {
    let mut first = Vec::new();
    let begin = prometheus::BEGIN.as_bytes();
    let read = input::open(path).and_then(|file| file.take(begin.len() as u64).read_to_end(&mut first));
    read.is_ok() && !first.is_empty() && first != begin
}

#[cfg(test)]
mod tests {
    use super::*;
    use membound_analyze::output::prometheus::Told;

    #[test]
    fn metrics_replace_nothing_but_metrics() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
        write("base.jsonl", "{\"type\":\"header\"}\n");
        write("short", "#");
        write("empty", "");
        write("lock", "");
        write("old.prom", &prometheus::check(Told::Unable, 1, 0.0));
        let told = |name: &str, others: &[(&str, &str)]| {
            let paths: Vec<_> = others.iter().map(|(flag, name)| (*flag, at(name))).collect();
            let others: Vec<_> = paths.iter().map(|(flag, path)| (*flag, Some(path.as_path()))).collect();
            refuse_other(&at(name), &others).map_err(|fault| fault.to_string())
        };
        for name in ["old.prom", "empty", "new.prom", "no/such/folder"] {
            assert_eq!(told(name, &[("--record", "new.jsonl"), ("--lock", "lock")]), Ok(()), "{name}");
        }
        for name in ["base.jsonl", "short"] {
            let said = told(name, &[]).unwrap_err();
            assert!(said.contains("only those are replaced; choose another file with --prometheus"), "{said}");
        }
        // Files that are there and files that are not, whatever their way is called.
        for (name, flag, other) in
            [("lock", "--lock", "lock"), ("new", "--record", "new"), ("new", "--record", "./new")]
        {
            let said = told(name, &[(flag, other)]).unwrap_err();
            assert!(said.contains(&format!("is the file of {flag}, too")), "{said}");
        }
        assert!(refuse_other(&at("new"), &[("--record", None)]).is_ok());
    }
}
