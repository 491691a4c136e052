//! likwid-bench, run as its users run it; its own figure counts, so its start-up does not.

use std::collections::BTreeMap;
use std::process::Command;

use membound_core::units::Bytes;

const PROGRAM: &str = "likwid-bench";
/// Huge pages for likwid-bench's arrays where the kernel gives them on request only: without them it reads memory at
/// 19 instead of 32 GB/s on the Zen 4 machine this was written on, and the comparison would be one of page sizes.
const HUGE_PAGES: (&str, &str) = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
/// What follows a kernel's name where there are variants of it.
const SUFFIXES: [&str; 7] = ["", "_sse", "_sse_fma", "_avx", "_avx_fma", "_avx512", "_avx512_fma"];

/// The kernels that this likwid-bench has.
pub struct Likwid {
    kernels: Vec<String>,
}

/// What one run reports.
pub struct Run {
    /// Payload bytes a second: likwid counts what the loop reads and writes, no write-allocate.
    pub payload_bps: f64,
    /// The working set that it really used, all streams and threads.
    pub working_set: Bytes,
    /// CPUs that its threads ran on.
    pub cpus: Vec<u32>,
}

impl Likwid {
    /// Asks for the list of kernels; an error names the cure.
    pub fn find() -> Result<Self, String> {
        let cure = "install it (Debian and Ubuntu: `apt-get install likwid`) and have it in PATH";
        let output = Command::new(PROGRAM)
            .arg("-a")
            .output()
            .map_err(|fault| format!("cannot run {PROGRAM}: {fault}; {cure}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let kernels: Vec<String> = text.lines().filter_map(|line| Some(line.split_once(" - ")?.0.to_owned())).collect();
        if kernels.is_empty() { Err(format!("{PROGRAM} -a lists no kernels; {cure}")) } else { Ok(Likwid { kernels }) }
    }

    /// The variants of these kernels.
    pub fn variants(&self, names: &[&str]) -> Vec<String> {
        let all = names.iter().flat_map(|name| SUFFIXES.map(|suffix| format!("{name}{suffix}")));
        all.filter(|name| self.kernels.contains(name)).collect()
    }

    /// Runs `kernel` so many times over a working set. `None` where it crashes or says nothing that can be understood.
    pub fn run(&self, kernel: &str, working_set: Bytes, threads: usize, iterations: u64) -> Option<Run> {
        // -W: each thread allocates its own part, as ours do. Of bytes it takes no more than 31 bits, of kB (1,000) it does.
        let size = match working_set.0 {
            bytes if bytes < 1 << 31 => format!("{bytes}B"),
            bytes => format!("{}kB", bytes / 1000),
        };
        let workgroup = format!("N:{size}:{threads}");
        let arguments = ["-t", kernel, "-W", &workgroup, "-i", &iterations.to_string()];
        let output = Command::new(PROGRAM).args(arguments).env(HUGE_PAGES.0, HUGE_PAGES.1).output().ok()?;
        if output.status.success() { Run::read(&String::from_utf8_lossy(&output.stdout)) } else { None }
    }
}

impl Run {
    fn read(text: &str) -> Option<Run> {
        let fields: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(":\t")).collect();
        let field = |name: &str| fields.get(name)?.trim().parse::<f64>().ok();
        let cpu = |line: &str| line.split_once("running on hwthread ")?.1.split_whitespace().next()?.parse().ok();
        Some(Run {
            payload_bps: field("MByte/s")? * 1e6,
            working_set: Bytes(field("Size (Byte)")? as u64),
            cpus: text.lines().filter(|line| line.starts_with("Group:")).filter_map(cpu).collect(),
        })
    }
}
