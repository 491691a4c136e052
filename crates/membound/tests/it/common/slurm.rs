//! A Slurm of four nodes on this one machine, for tests: its own munge, controller and node daemons, in a folder of its
//! own, on free ports of the loopback device. Nothing of a Slurm that is installed is touched.
//!
//! ```text
//! let Some(mut slurm) = Slurm::start(&Options::default()) else { return };   // says why it skips
//! let said = slurm.output("srun", &["-N4", "hostname"]);                     // environment set, output as text
//! slurm.stop_node(3);                                                        // n3's slurmd dies, as in a power cut
//! ```
//!
//! Dropped, also by a test that panics, it cancels jobs, ends its daemons, and then every process that bears its folder
//! in its environment or arguments: only what was started below it can.

use crate::common::signals::send;
use crate::common::skip::skip;
use std::fs;
use std::fs::File;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nodes n1 to n4.
pub const NODES: usize = 4;
/// A machine that builds something else beside the tests starts slowly.
const STARTS_WITHIN: Duration = Duration::from_secs(120);
const ENDS_WITHIN: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// In the environment of each slurmd and of what inherits it: the node's name.
const NODE_MARK: &str = "MEMBOUND_TEST_NODE";

/// What differs from test to test.
#[derive(Debug, Clone)]
pub struct Options {
    /// CPUs that each node claims to have.
    pub cpus: usize,
    /// After so many seconds without an answer a node is down.
    pub slurmd_timeout_s: u32,
    /// The text of a script, and every how many seconds each slurmd runs it. `SLURM_CONF` is set in it, and
    /// `SLURMD_NODENAME`, as in every health check; there is no `PATH`, as slurmd gives none.
    pub health_check: Option<(String, u32)>,
    /// Further lines of slurm.conf.
    pub more: String,
}

impl Default for Options {
    fn default() -> Self {
        Options { cpus: 2, slurmd_timeout_s: 60, health_check: None, more: String::new() }
    }
}

/// A running Slurm.
#[derive(Debug)]
pub struct Slurm {
    folder: tempfile::TempDir,
    munged: Option<Child>,
    controller: Option<Child>,
    nodes: [Option<Child>; NODES],
}

/// Whether the program can be found, also among those for administrators.
pub fn has(program: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':').chain(["/usr/sbin", "/sbin"]).any(|folder| Path::new(folder).join(program).is_file())
}

impl Slurm {
    /// Starts it and waits until all nodes are idle. `None`, with a message, where it is not installed or this is not root.
    pub fn start(options: &Options) -> Option<Slurm> {
        let programs = ["munged", "slurmctld", "slurmd", "srun", "sinfo", "scontrol"];
        if let Some(missing) = programs.into_iter().find(|program| !has(program)) {
            skip(format!("no {missing} here; Debian: apt-get install slurmctld slurmd slurm-client munge"));
            return None;
        }
        if !is_root() {
            skip("a Slurm is started by root only");
            return None;
        }
        let folder = tempfile::Builder::new().prefix("membound-slurm-").tempdir().unwrap();
        // munged wants to be sure that nobody else can replace its socket, and everybody can reach it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut slurm = Slurm { folder, munged: None, controller: None, nodes: Default::default() };
        slurm.write_files(options);
        slurm.start_munge();
        slurm.controller = Some(slurm.daemon("slurmctld", &["-D"], "slurmctld.out", (NODE_MARK, "none")));
        for node in 1..=NODES {
            slurm.start_node(node);
        }
        slurm.wait_for("all nodes are idle", STARTS_WITHIN, |slurm| slurm.states().iter().all(|state| state == "idle"));
        Some(slurm)
    }

    /// Its folder: logs (`*.log`, `*.out`), `slurm.conf`, and room for what a test wants to leave there.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its configuration.
    pub fn conf(&self) -> PathBuf {
        self.folder().join("slurm.conf")
    }

    /// A command that talks to this Slurm.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("SLURM_CONF", self.conf());
        // What a job around the tests has set must not reach those in them.
        for (name, _) in std::env::vars() {
            if name.starts_with("SLURM") && name != "SLURM_CONF" {
                command.env_remove(name);
            }
        }
        command.current_dir(self.folder()).stdin(Stdio::null());
        command
    }

    /// What a command says on stdout; its stderr follows where it fails.
    pub fn output(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output().unwrap();
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            text.push_str(&String::from_utf8_lossy(&output.stderr));
        }
        text
    }

    /// The nodes' states, n1 first, as sinfo calls them: `idle`, `allocated`, `drained`, `down*`.
    pub fn states(&self) -> Vec<String> {
        let said = self.output("sinfo", &["-h", "-N", "-o", "%N %T"]);
        let state = |node| said.lines().find_map(|line| line.trim().strip_prefix(&format!("{} ", name(node))));
        // What is said instead tells why.
        (1..=NODES).map(|node| state(node).unwrap_or(&said).trim().to_string()).collect()
    }

    /// The process of a node's slurmd; absent where it was stopped.
    pub fn node(&self, node: usize) -> Option<u32> {
        self.nodes[node - 1].as_ref().map(Child::id)
    }

    /// Starts a node's slurmd, or starts it again.
    pub fn start_node(&mut self, node: usize) {
        let name = name(node);
        let mark = (NODE_MARK, name.as_str());
        self.nodes[node - 1] = Some(self.daemon("slurmd", &["-D", "-N", &name], &format!("{name}.out"), mark));
    }

    /// Kills a node's slurmd and all that runs on this node, as in a power cut: all of it stands still before anything is killed,
    /// since whatever lives a moment longer would report what it saw die.
    pub fn stop_node(&mut self, node: usize) {
        // Tasks have the first, slurmd and what it starts without a job's environment the second.
        let own = [format!("SLURMD_NODENAME={} ", name(node)), format!("{NODE_MARK}={} ", name(node))];
        let slurmd = self.node(node);
        let is_own = |process: &u32| Some(*process) == slurmd || own.iter().any(|mark| marks(*process).contains(mark));
        for signal in [libc::SIGSTOP, libc::SIGKILL] {
            self.processes().into_iter().filter(is_own).for_each(|process| {
                send(signal, process);
            });
        }
        if let Some(mut child) = self.nodes[node - 1].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Waits until something holds; panics with the daemons' last words if it does not in time.
    pub fn wait_for(&self, what: &str, within: Duration, holds: impl Fn(&Slurm) -> bool) {
        let deadline = Instant::now() + within;
        while !holds(self) {
            if Instant::now() > deadline {
                panic!("{within:?} were not enough until {what}: nodes are {:?}\n{}", self.states(), self.last_words());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The ends of the daemons' logs.
    pub fn last_words(&self) -> String {
        let mut words = String::new();
        for entry in fs::read_dir(self.folder()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "out" || end == "log") {
                let text =
                    fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                words.push_str(&format!(
                    "== {}\n{}\n",
                    path.display(),
                    lines[lines.len().saturating_sub(8)..].join("\n")
                ));
            }
        }
        words
    }

    /// All that was started below this Slurm and still runs, its daemons included: jobs, steps, health checks.
    pub fn processes(&self) -> Vec<u32> {
        let mark = self.folder().display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            if process != std::process::id() && marks(process).contains(&mark) && !is_zombie(process) {
                found.push(process);
            }
        }
        found
    }

    fn daemon(&self, program: &str, arguments: &[&str], out: &str, mark: (&str, &str)) -> Child {
        let file = || File::options().create(true).append(true).open(self.folder().join(out)).unwrap();
        self.command(program)
            .args(arguments)
            .arg("-f")
            .arg(self.conf())
            .env(mark.0, mark.1)
            .stdout(file())
            .stderr(file())
            .spawn()
            .unwrap_or_else(|fault| panic!("{program} does not start: {fault}"))
    }

    fn start_munge(&mut self) {
        let at = |name: &str| self.folder().join(name);
        let log = File::create(at("munged.out")).unwrap();
        let child = self
            .command("munged")
            .arg("--foreground")
            .arg(format!("--socket={}", at("munge.socket").display()))
            .arg(format!("--key-file={}", at("munge.key").display()))
            .arg(format!("--pid-file={}", at("munged.pid").display()))
            .arg(format!("--log-file={}", at("munged.log").display()))
            .arg(format!("--seed-file={}", at("munged.seed").display()))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.munged = Some(child);
        self.wait_for("munge listens", STARTS_WITHIN, |slurm| slurm.folder().join("munge.socket").exists());
    }

    fn write_files(&self, options: &Options) {
        let folder = self.folder();
        let at = |name: &str| folder.join(name);
        for name in ["state", "spool"] {
            fs::create_dir(at(name)).unwrap();
        }
        // A key for this one run, readable by root alone.
        let mut key = File::create(at("munge.key")).unwrap();
        fs::set_permissions(at("munge.key"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut random = [0; 64];
        std::io::Read::read_exact(&mut File::open("/dev/urandom").unwrap(), &mut random).unwrap();
        key.write_all(&random).unwrap();
        if let Some((script, _)) = &options.health_check {
            let body = format!("#!/bin/sh\nSLURM_CONF={}\nexport SLURM_CONF\n{script}\n", self.conf().display());
            fs::write(at("health-check.sh"), body).unwrap();
            fs::set_permissions(at("health-check.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(self.conf(), self.conf_text(options)).unwrap();
    }

    fn conf_text(&self, options: &Options) -> String {
        let folder = self.folder().display();
        let ports = free_ports(NODES + 1);
        let mut text = format!(
            "ClusterName=membound\n\
             SlurmctldHost=localhost(127.0.0.1)\n\
             SlurmctldPort={}\n\
             AuthType=auth/munge\n\
             AuthInfo=socket={folder}/munge.socket\n\
             CredType=cred/munge\n\
             SlurmUser=root\n\
             SlurmdUser=root\n\
             StateSaveLocation={folder}/state\n\
             SlurmdSpoolDir={folder}/spool/%n\n\
             SlurmctldPidFile={folder}/slurmctld.pid\n\
             SlurmdPidFile={folder}/%n.pid\n\
             SlurmctldLogFile={folder}/slurmctld.log\n\
             SlurmdLogFile={folder}/%n.log\n\
             ProctrackType=proctrack/pgid\n\
             TaskPlugin=task/none\n\
             SelectType=select/cons_tres\n\
             ReturnToService=2\n\
             SlurmdParameters=config_overrides\n\
             SlurmdTimeout={}\n\
             InactiveLimit=0\n\
             KillWait=2\n\
             MpiDefault=none\n",
            ports[0], options.slurmd_timeout_s
        );
        if let Some((_, every_s)) = &options.health_check {
            text.push_str(&format!("HealthCheckProgram={folder}/health-check.sh\nHealthCheckInterval={every_s}\n"));
        }
        text.push_str(&options.more);
        text.push('\n');
        for (index, port) in ports.iter().skip(1).enumerate() {
            text.push_str(&format!(
                "NodeName={} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs={} RealMemory=2000 State=UNKNOWN\n",
                name(index + 1),
                options.cpus
            ));
        }
        text.push_str("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n");
        text
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let in_time = |holds: &mut dyn FnMut() -> bool| {
            let deadline = Instant::now() + ENDS_WITHIN;
            while !holds() && Instant::now() < deadline {
                std::thread::sleep(LOOK_EVERY);
            }
        };
        if self.controller.is_some() && self.munged.is_some() {
            // Of all jobs of this Slurm; one whose controller hangs must not make the test hang.
            if let Ok(mut cancel) = self.command("scancel").args(["-u", "root"]).stderr(Stdio::null()).spawn() {
                in_time(&mut || matches!(cancel.try_wait(), Ok(Some(_)) | Err(_)));
                let _ = cancel.kill();
                let _ = cancel.wait();
            }
        }
        let mut daemons: Vec<Child> = self.nodes.iter_mut().filter_map(Option::take).collect();
        daemons.extend(self.controller.take());
        daemons.extend(self.munged.take());
        for child in &daemons {
            send(libc::SIGTERM, child.id());
        }
        in_time(&mut || daemons.iter_mut().all(|child| matches!(child.try_wait(), Ok(Some(_)) | Err(_))));
        for child in &mut daemons {
            let _ = child.kill();
            let _ = child.wait();
        }
        in_time(&mut || {
            let left = self.processes();
            left.iter().for_each(|process| {
                send(libc::SIGKILL, *process);
            });
            left.is_empty()
        });
    }
}

/// The name of node 1 to 4.
pub fn name(node: usize) -> String {
    format!("n{node}")
}

/// Environment and arguments of a process, as far as they can be read; parted by blanks.
fn marks(process: u32) -> String {
    let read = |file: &str| fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    let bytes: Vec<u8> = read("environ").into_iter().chain([0]).chain(read("cmdline")).chain([0]).collect();
    String::from_utf8_lossy(&bytes).replace('\0', " ")
}

fn is_zombie(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

/// Ports that are free at this moment, below those from 32768 on that Linux gives to whoever connects: one of these had gone to a
/// connection before the controller could take it.
fn free_ports(count: usize) -> Vec<u16> {
    let tried = (0..1000).filter_map(|_| TcpListener::bind(("0.0.0.0", fastrand::u16(10_000..32_768))).ok());
    let listeners: Vec<TcpListener> = tried.take(count).collect();
    assert_eq!(listeners.len(), count, "no free ports");
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}
