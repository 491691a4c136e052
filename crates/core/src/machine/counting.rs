//! Whether this process may count events of a whole CPU, as counters of power and of memory controllers are.

use crate::machine::source::Source;

/// Numbers of the capabilities that allow it: Linux, include/uapi/linux/capability.h.
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;

/// Why it may not, and what helps; nothing where it may or the setting can't be read. Counts of a whole CPU need a
/// `perf_event_paranoid` of 0 or less, or a capability (Documentation/admin-guide/sysctl/kernel.rst).
pub(super) fn refusal(source: &Source) -> Option<String> {
    let level = source.number::<i32>("proc/sys/kernel/perf_event_paranoid").get()?;
    (level > 0 && !has_capability(source)).then(|| {
        format!("perf_event_paranoid is {level}; sysctl kernel.perf_event_paranoid=0, or the capability CAP_PERFMON")
    })
}

fn has_capability(source: &Source) -> bool {
    let status = source.text("proc/self/status");
    let mask = status.known().and_then(|text| {
        let value = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(value.trim(), 16).ok()
    });
    mask.is_some_and(|mask| mask >> CAP_PERFMON & 1 == 1 || mask >> CAP_SYS_ADMIN & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_refuses_and_a_capability_allows() {
        let root = tempfile::tempdir().unwrap();
        let check = |level: &str, capabilities: &str, expect: Option<&str>| {
            for (file, text) in [("sys/kernel/perf_event_paranoid", level), ("self/status", capabilities)] {
                let path = root.path().join("proc").join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let found = refusal(&Source::recorded(root.path()).unwrap());
            assert_eq!(found.as_deref().map(|why| why.split(';').next().unwrap_or_default()), expect, "{capabilities}");
        };
        let (none, root_user) = ("Name:\tx\nCapEff:\t0000000000000000\n", "CapEff:\t000001ffffffffff\n");
        check("2\n", none, Some("perf_event_paranoid is 2"));
        check("0\n", none, None);
        check("-1\n", none, None);
        check("2\n", root_user, None);
        check("2\n", "CapEff:\t0000004000000000\n", None);
        check("2\n", "Name:\tx\n", Some("perf_event_paranoid is 2"));
    }
}
