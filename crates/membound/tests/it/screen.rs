//! Screening: simulated fleets whose faults are known, records made by hand, what a user may do wrong.

use crate::common::{by_hand, imitation};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::common::fleets::{FAULTS, Fault, NOISES, Noise, Simulated};
use crate::common::program::tried;
use crate::common::schema::Validator;
use membound_analyze::across::fleet::cells::Cell;
use membound_analyze::across::fleet::finding::{Direction, Finding, Options, signed};
use membound_analyze::across::fleet::gather::{Table, gather};
use membound_analyze::across::fleet::nodes::{Facts, Fleet, Hardware, Node};
use membound_analyze::across::fleet::rows::{Metric, ScreenRow, rows};
use membound_analyze::across::fleet::screen;
use membound_analyze::across::fleet::screening::Screening;
use membound_analyze::across::fleet::topology::Topology;
use membound_analyze::across::sections;
use membound_analyze::across::verdict::diagnosis::CauseKind;
use membound_analyze::output::{csv, json, terminal};
use membound_core::case as plan;
use membound_core::case::{Case, Work};
use membound_core::kernel::chase::{Chase, Order};
use membound_core::kernel::{StoreKind, Width};
use membound_core::machine::Machine;
use membound_core::machine::fact::Fact;
use membound_core::memory::{MemoryKind, MemorySpec};
use membound_core::record::probes::ProbeSamples;
use membound_core::record::skim::{Cases, Skim};
use membound_core::record::{End, Environment, Measurement, Outcome, Record};
use membound_core::units::Bytes;
use proptest::prelude::*;

fn screened(fleet: &Fleet) -> Screening {
    screen(fleet, None, None, Options::default())
}

/// The one finding.
fn only(screening: &Screening) -> &Finding {
    let [finding] = &screening.findings[..] else { panic!("{:?}", screening.findings) };
    finding
}

/// What is wrong with each node against what is said of it: found, causes right, false.
#[derive(Debug, Default, PartialEq)]
struct Score {
    planted: usize,
    found: usize,
    right: usize,
    wrong: usize,
}

impl Score {
    fn add(&mut self, screening: &Screening, truth: &[Option<Fault>]) {
        for (node, fault) in truth.iter().enumerate() {
            let finding = screening.findings.iter().find(|finding| finding.node == node);
            match (fault, finding) {
                (Some(fault), finding) => {
                    let found = finding.filter(|finding| finding.direction == Direction::Slower);
                    self.planted += 1;
                    self.found += usize::from(found.is_some());
                    self.right += usize::from(found.is_some_and(|finding| finding.cause == Some(fault.cause())));
                }
                (None, Some(_)) => self.wrong += 1,
                (None, None) => {}
            }
        }
    }
}

/// Deficits of 3 % where healthy nodes differ by 1 %, 50 faulty nodes of 1,000.
#[test]
fn planted_faults_are_found_with_their_causes() {
    for noise in NOISES {
        for tells_modules in [true, false] {
            let mut score = Score::default();
            for seed in 0..2 {
                let mut simulated = Simulated { tells_modules, ..Simulated::new(seed, noise) };
                let (fleet, truth) = simulated.fleet(1000, Some(20), 0.03);
                score.add(&screened(&fleet), &truth);
            }
            println!("{noise:?}, modules {tells_modules}: {score:?}");
            assert_eq!(score.planted, 100);
            assert!(score.found >= 99, "{noise:?}: {score:?}");
            assert!(score.right >= 90, "{noise:?}: {score:?}");
            assert!(score.wrong <= 2, "{noise:?}: {score:?}");
        }
    }
}

/// At most one node in 1,000.
#[test]
fn healthy_fleets_have_no_findings() {
    for noise in NOISES {
        let mut wrong = 0;
        for seed in 100..105 {
            let (fleet, _) = Simulated::new(seed, noise).fleet(1000, None, 0.0);
            wrong += screened(&fleet).findings.len();
        }
        println!("{noise:?}: {wrong} of 5,000");
        assert!(wrong <= 5, "{noise:?}: {wrong} of 5,000");
    }
}

/// Small fleets know less: they are certain of larger faults only.
#[test]
fn small_fleets_find_large_faults() {
    for nodes in [5usize, 8, 16] {
        let (mut found, mut wrong) = (0, 0);
        for seed in 0..20 {
            let mut simulated = Simulated::new(seed, Noise::Normal);
            let (mut fleet, _) = simulated.fleet(nodes, None, 0.0);
            let hardware = fleet.nodes[0].hardware.clone();
            fleet.nodes[2] = simulated.node("n2", &hardware, 1.0, Some((Fault::Channel, 0.125)));
            let screening = screened(&fleet);
            found += usize::from(screening.findings.iter().any(|finding| finding.host == "n2"));
            wrong += screening.findings.iter().filter(|finding| finding.host != "n2").count();
        }
        println!("{nodes} nodes: {found} of 20 found, {wrong} wrong");
        assert!(found >= if nodes < 8 { 12 } else { 15 }, "{nodes} nodes: {found} of 20");
        assert!(wrong <= 2, "{nodes} nodes: {wrong}");
    }
}

#[test]
fn mixed_hardware_is_several_cohorts() {
    let mut simulated = Simulated::new(7, Noise::Normal);
    let (mut fleet, _) = simulated.fleet(100, None, 0.0);
    let (other, lone) = (Simulated::hardware("Processor B"), Simulated::hardware("Processor C"));
    for index in 0..40 {
        let fault = (index == 3).then_some((Fault::Clock, 0.05));
        fleet.nodes.push(simulated.node(&format!("b{index}"), &other, 0.8, fault));
    }
    fleet.nodes.push(simulated.node("c0", &lone, 2.0, None));
    let screening = screened(&fleet);
    let sizes: Vec<usize> = screening.cohorts.iter().map(|cohort| cohort.nodes.len()).collect();
    assert_eq!(sizes, [100, 40, 1]);
    assert!(
        screening.cohorts[1].name.starts_with("Processor B, 2 packages, 128 cores"),
        "{:?}",
        screening.cohorts[1].name
    );
    let found: Vec<&str> = screening.findings.iter().map(|finding| finding.host.as_str()).collect();
    assert_eq!(found, ["b3"]);
    assert!(screening.notes.iter().any(|note| note.starts_with("c0: alone of its kind")), "{:?}", screening.notes);
}

/// A node of other cores or packages, as fast as the others.
fn with_cores(node: &mut Node, packages: usize, cores: usize) {
    node.hardware = std::sync::Arc::new(Hardware { packages, cores, ..(*node.hardware).clone() });
}

/// What a fault changes must not part a node from its neighbours, and all its other figures may be as theirs.
#[test]
fn a_node_that_lost_cores_is_a_finding() {
    let mut simulated = Simulated::new(19, Noise::Normal);
    let (mut fleet, _) = simulated.fleet(40, None, 0.0);
    with_cores(&mut fleet.nodes[3], 2, 127);
    with_cores(&mut fleet.nodes[5], 1, 64);
    with_cores(&mut fleet.nodes[7], 2, 160);
    let screening = screened(&fleet);
    let sizes: Vec<usize> = screening.cohorts.iter().map(|cohort| cohort.nodes.len()).collect();
    assert_eq!(sizes, [39, 1], "one with more has lost nothing, and nobody is like it");
    let found: Vec<(&str, Direction)> =
        screening.findings.iter().map(|finding| (finding.host.as_str(), finding.direction)).collect();
    assert_eq!(found, [("n3", Direction::Slower), ("n5", Direction::Slower)]);
    let said: Vec<String> = screening.findings.iter().map(|finding| finding.sentence()).collect();
    assert_eq!(said[0], "n3: 127 of 128 cores: L1, L2, L3, memory as its neighbours");
    assert!(said[1].starts_with("n5: 1 of 2 packages: "), "{said:?}");
    let rows = rows(&fleet, &screening, &[]);
    assert_eq!((rows[0].host.as_deref(), rows[0].deviation), (Some("n3"), None));
    // Enough of the one and of the other are two kinds.
    fleet.nodes[20..30].iter_mut().for_each(|node| with_cores(node, 1, 64));
    let names: Vec<String> = screened(&fleet).cohorts.iter().map(|cohort| cohort.name.clone()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[1].ends_with("1 package, 64 cores"), "{names:?}");
}

/// Half the nodes have twice the memory: two cohorts. One node that lost a module: none of its own.
#[test]
fn memory_parts_a_cohort_where_enough_have_it() {
    let mut simulated = Simulated::new(8, Noise::Normal);
    let (mut fleet, _) = simulated.fleet(40, None, 0.0);
    for node in &mut fleet.nodes[20..] {
        node.facts.memory_bytes = Some(1024 << 30);
    }
    fleet.nodes[5].facts.memory_bytes = Some(256 << 30);
    let screening = screened(&fleet);
    let names: Vec<(usize, &str)> =
        screening.cohorts.iter().map(|cohort| (cohort.nodes.len(), cohort.name.rsplit(", ").next().unwrap())).collect();
    assert_eq!(names, [(20, "512 GiB"), (20, "1 TiB")]);
}

#[test]
fn a_finding_reads_as_a_sentence() {
    let mut simulated = Simulated::new(9, Noise::Normal);
    let (mut fleet, _) = simulated.fleet(200, None, 0.0);
    let hardware = fleet.nodes[0].hardware.clone();
    fleet.nodes[3] = simulated.node("n3", &hardware, 1.0, Some((Fault::Channel, 0.12)));
    let screening = screened(&fleet);
    let finding = only(&screening);
    let text = finding.sentence();
    assert!(text.starts_with("n3: 15 of 16 memory modules: memory "), "{text}");
    assert!(text.ends_with("L1, L2, L3 as its neighbours"), "{text}");
    assert!((finding.worst() + 0.12).abs() < 0.01, "{text}");
    assert!(finding.cure.starts_with("fit a module to each channel"), "{}", finding.cure);
    let says = "1 of 200 nodes of 1 kind of hardware is slower than its neighbours: n3 (15 of 16 memory modules).";
    assert_eq!(screening.sentences, [says]);
    assert_eq!(signed(-0.1234), "-12.3%");
}

/// A node that is faster is said so, behind those that are slower.
#[test]
fn faster_nodes_stand_last() {
    let mut simulated = Simulated::new(10, Noise::Normal);
    let (mut fleet, _) = simulated.fleet(200, None, 0.0);
    let hardware = fleet.nodes[0].hardware.clone();
    fleet.nodes[1] = simulated.node("fast", &hardware, 1.2, None);
    fleet.nodes[2] = simulated.node("slow", &hardware, 1.0, Some((Fault::Clock, 0.05)));
    let screening = screened(&fleet);
    let found: Vec<(&str, Direction)> =
        screening.findings.iter().map(|finding| (finding.host.as_str(), finding.direction)).collect();
    assert_eq!(found, [("slow", Direction::Slower), ("fast", Direction::Faster)]);
}

/// What makes a node stand out says which way it deviates: the rest may be chance, among so many nodes.
#[test]
fn what_chance_explains_gives_no_direction() {
    let mut simulated = Simulated::new(20, Noise::Normal);
    let (mut fleet, _) = simulated.fleet(200, None, 0.0);
    let is_in = |level: &str, cell: &Cell| cell.level == level && cell.unit == "B/s";
    let cells = fleet.cells.clone();
    let faster = |node: &mut Node, level: &str, by: f64| {
        let ours = node.figures.iter_mut().filter(|figure| is_in(level, &cells[figure.cell as usize]));
        ours.for_each(|figure| figure.log += by as f32);
    };
    for node in &mut fleet.nodes {
        faster(node, "memory", 0.004 * simulated.normal());
    }
    faster(&mut fleet.nodes[9], "L1", 0.08);
    let usual = fleet.clone();
    let directions: Vec<(Direction, bool)> = (10..60)
        .map(|slower| {
            let mut fleet = usual.clone();
            faster(&mut fleet.nodes[9], "memory", -0.001 * f64::from(slower));
            let screening = screen(&fleet, None, None, Options { noise: 0.01, ..Options::default() });
            let finding = only(&screening);
            (finding.direction, finding.deviations.iter().any(|deviation| deviation.deviation < 0.0))
        })
        .collect();
    println!("{directions:?}");
    let (first, last) = (directions[0], directions[directions.len() - 1]);
    assert_eq!((first, last), ((Direction::Faster, false), (Direction::Slower, true)));
    assert!(directions.contains(&(Direction::Faster, true)), "it is told, and decides nothing: {directions:?}");
}

/// Ten switches of 20 nodes; those under s3 are 4 % slow in memory.
#[test]
fn a_slow_switch_is_one_finding() {
    let mut simulated = Simulated::new(11, Noise::Shared);
    let (mut fleet, _) = simulated.fleet(200, None, 0.0);
    let hardware = fleet.nodes[0].hardware.clone();
    for index in 60..80 {
        fleet.nodes[index] = simulated.node(&format!("n{index}"), &hardware, 1.0, Some((Fault::Neighbour, 0.04)));
    }
    let mut text: String =
        (0..10).map(|switch| format!("SwitchName=s{switch} Nodes=n[{}-{}]\n", 20 * switch, 20 * switch + 19)).collect();
    text += "SwitchName=top Switches=s[0-9]\n";
    let topology = Topology::parse(&text).unwrap();
    let screening = screen(&fleet, None, Some(&topology), Options::default());
    let slow: Vec<&str> =
        screening.switches.iter().filter(|line| line.is_slow).map(|line| line.name.as_str()).collect();
    assert_eq!(slow, ["s3"]);
    assert!(
        screening.sentences.iter().any(|text| text.starts_with("all 20 nodes under switch s3 are slow: ")),
        "{:?}",
        screening.sentences
    );
    assert!(screening.findings.iter().filter(|finding| finding.switch.as_deref() == Some("s3")).count() >= 18);
    let healthy = Simulated::new(12, Noise::SharedHeavy).fleet(200, None, 0.0).0;
    let screening = screen(&healthy, None, Some(&topology), Options::default());
    assert!(!screening.switches.iter().any(|line| line.is_slow));
}

/// The same fleet later: memory of all nodes is 4 % slower, and one has lost 10 % more.
#[test]
fn an_earlier_fleet_says_what_got_slower() {
    let (then, _) = Simulated::new(13, Noise::Normal).fleet(60, None, 0.0);
    let mut now = then.clone();
    let mut random = Simulated::new(14, Noise::Normal);
    for (index, node) in now.nodes.iter_mut().enumerate() {
        for (figure, cell) in node.figures.iter_mut().zip(&then.cells) {
            let is_hit = cell.level == "memory" && cell.unit == "B/s";
            let lost = if is_hit { if index == 7 { 0.96f64.ln() + 0.9f64.ln() } else { 0.96f64.ln() } } else { 0.0 };
            figure.log += (lost + 0.003 * random.normal()) as f32;
        }
    }
    now.nodes[7].facts.settings[1].1 = "powersave".into();
    now.nodes.pop();
    let screening = screen(&now, Some(&then), None, Options::default());
    let since = screening.since.as_ref().unwrap();
    assert_eq!((since.nodes, since.nodes_changed.len()), (59, 1));
    let node = &since.nodes_changed[0];
    assert!(node.host == "n7" && (node.deviations[0].deviation + 0.1).abs() < 0.01, "{node:?}");
    assert_eq!(node.settings, ["governor: performance earlier, powersave now"]);
    let certain: Vec<&str> =
        since.changes.iter().filter(|change| change.is_certain).map(|change| change.group.as_str()).collect();
    assert_eq!(certain, ["memory read", "memory write", "memory copy"]);
    assert!(since.changes.iter().filter(|change| change.is_certain).all(|change| (change.change + 0.04).abs() < 0.003));
    assert!(since.notes.iter().any(|note| note == "In the earlier fleet alone: n59."), "{:?}", since.notes);
    // Nothing changed: nothing is said.
    let same = screen(&then, Some(&then), None, Options::default()).since.unwrap();
    assert!(same.nodes_changed.is_empty() && !same.changes.iter().any(|change| change.is_certain));
}

/// What CPUs of either node read on node 0 has the same words. Of today's records the remote case was met last, of the earlier ones
/// first.
#[test]
fn cells_of_two_fleets_are_the_same_by_what_they_mean() {
    let memory = MemorySpec::on(MemoryKind::Thp, 0);
    let read = |cpu| plan::steady("load", Width::W256, StoreKind::Regular, memory, vec![cpu], Bytes::mib(256));
    let (local, remote) = ((read(0), 1e10), (read(1), 6e9));
    let fleet = |order: [&(Case, f64); 2], folder: &Path, table: &Table| {
        let path = |index: u64| {
            let mut record = node(&format!("n{index}"), 1.0, index);
            record.header.machine.cpus.iter_mut().for_each(|cpu| cpu.node = Fact::Known(cpu.id));
            record.measurements = order.iter().map(|(case, bps)| imitation::visit(case, *bps, &[])).collect();
            write(folder, &format!("n{index}.jsonl"), &record)
        };
        gather(&(0..5).map(path).collect::<Vec<_>>(), 1, 4_000_000_000, table).fleet
    };
    let (folder, table) = (tempfile::tempdir().unwrap(), Table::default());
    let now = fleet([&local, &remote], &folder.path().join("now"), &table);
    let then = fleet([&remote, &local], &folder.path().join("then"), &table);
    let words: Vec<&str> = now.cells.iter().map(|cell| cell.what.as_str()).collect();
    assert!(words.len() == 2 && words[0] == words[1], "{words:?}");
    for (now, then) in now.nodes.iter().zip(&then.nodes) {
        assert_eq!(now.figures, then.figures);
    }
    let since = screen(&now, Some(&then), None, Options::default()).since.unwrap();
    assert_eq!(since.nodes, 5);
    assert!(!since.changes.is_empty() && since.changes.iter().all(|change| change.change.abs() < 1e-6), "{since:?}");
}

/// A limit of one node among others without, and of one that is less than theirs: the time of 32 CPUs.
#[test]
fn a_limit_on_cpu_time_is_a_cause_where_neighbours_have_none_or_more() {
    for (usual, says) in [(None, "its neighbours have no such limit"), (Some(64.0), "its neighbours that of 64.0")] {
        let mut simulated = Simulated::new(22, Noise::Normal);
        let (mut fleet, _) = simulated.fleet(40, None, 0.0);
        let hardware = fleet.nodes[0].hardware.clone();
        fleet.nodes[3] = simulated.node("n3", &hardware, 0.9, None);
        for (index, node) in fleet.nodes.iter_mut().enumerate() {
            let limit = if index == 3 { Some(32.0) } else { usual };
            let text = limit.map_or("none".to_string(), |cpus: f64| format!("{cpus} CPUs"));
            node.facts.cpu_time = limit;
            node.facts.settings.push(("limit of CPU time", text.into()));
        }
        let screening = screened(&fleet);
        let finding = only(&screening);
        assert_eq!((finding.host.as_str(), finding.cause), ("n3", Some(CauseKind::CpuTime)));
        let evidence = format!("a control group allows it the time of 32.0 CPUs, {says}");
        assert_eq!(finding.evidence[0], evidence);
    }
}

/// Time that others take slows a node down: one that is faster has it from something else.
#[test]
fn a_faster_node_is_not_so_by_what_others_take() {
    for (speed, direction, cause) in
        [(1.2, Direction::Faster, None), (0.8, Direction::Slower, Some(CauseKind::TimeTaken))]
    {
        let mut simulated = Simulated::new(23, Noise::Normal);
        let (mut fleet, _) = simulated.fleet(40, None, 0.0);
        let hardware = fleet.nodes[0].hardware.clone();
        fleet.nodes[3] = simulated.node("n3", &hardware, speed, None);
        fleet.nodes[3].facts.steal_share = Some(0.05);
        let screening = screened(&fleet);
        let finding = only(&screening);
        assert_eq!((finding.direction, finding.cause), (direction, cause));
    }
}

/// The page cache comes between what facts and what the pattern tell of huge pages.
#[test]
fn what_a_fact_tells_needs_no_pattern() {
    let mut simulated = Simulated::new(24, Noise::Normal);
    let (mut fleet, _) = simulated.fleet(40, None, 0.0);
    let hardware = fleet.nodes[0].hardware.clone();
    fleet.nodes[3] = simulated.node("n3", &hardware, 1.0, Some((Fault::HugePages, 0.12)));
    fleet.nodes[3].facts.page_cache_share = Some(0.7);
    let screening = screened(&fleet);
    let finding = only(&screening);
    assert_eq!(finding.cause, Some(CauseKind::PageSize));
    let holds = |part: &str| finding.evidence.iter().filter(|text| text.contains(part)).count();
    let parts = ["0% of the memory that was wanted in huge pages", "page cache held 70%", "large working sets"];
    assert_eq!(parts.map(holds), [1, 1, 0], "{:?}", finding.evidence);
}

/// Where neighbours are too few nothing was compared, which is not the same as nothing found.
#[test]
fn too_few_neighbours_are_no_pass() {
    let (then, _) = Simulated::new(18, Noise::Normal).fleet(3, None, 0.0);
    let mut now = then.clone();
    now.nodes[1].figures.iter_mut().for_each(|figure| figure.log -= 0.7);
    let since = screen(&now, Some(&then), None, Options::default()).since.unwrap();
    assert_eq!((since.nodes, since.left_out), (0, 3));
    assert_eq!(since.sentences(), ["Since the earlier fleet: none of 3 nodes could be compared with its neighbours."]);
    assert!(since.notes.iter().any(|note| note.contains("only 3 of a kind")), "{:?}", since.notes);
}

#[test]
fn degenerate_fleets_are_no_trouble() {
    let empty = screened(&Fleet::default());
    assert!(empty.findings.is_empty() && empty.sentences[0].starts_with("0 nodes read, none screened"), "{empty:?}");
    let (mut fleet, _) = Simulated::new(15, Noise::Normal).fleet(6, None, 0.0);
    // All the same to the last bit, and one that lacks nearly all cells.
    let figures = fleet.nodes[0].figures.clone();
    fleet.nodes.iter_mut().for_each(|node| node.figures = figures.clone());
    fleet.nodes[4].figures.truncate(3);
    fleet.nodes[5].facts = Facts::default();
    let screening = screened(&fleet);
    assert!(screening.findings.is_empty(), "{:?}", screening.findings);
    fleet.nodes.iter_mut().for_each(|node| node.figures.clear());
    assert!(screened(&fleet).notes[0].contains("nothing was measured"));
}

#[test]
fn views_are_whole_and_narrow() {
    let mut simulated = Simulated::new(16, Noise::Normal);
    let (fleet, _) = simulated.fleet(200, Some(20), 0.08);
    let (then, _) = Simulated::new(17, Noise::Normal).fleet(200, None, 0.0);
    let topology = Topology::parse("SwitchName=a Nodes=n[0-99]\nSwitchName=b Nodes=n[100-199]").unwrap();
    let screening = screen(&fleet, Some(&then), Some(&topology), Options::default());
    let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
    for all in [false, true] {
        let text = plain(&terminal::section::document(&sections::fleet::document(&fleet, &screening, &[], &[], all)));
        if !all {
            println!("{text}");
        }
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.starts_with("10 of 200 nodes of 1 kind of hardware are slower"), "{text}");
    }
    // No node is both among the slowest and the fastest of a few.
    let (few, _) = Simulated::new(21, Noise::Normal).fleet(6, None, 0.0);
    let text = plain(&terminal::section::document(&sections::fleet::document(&few, &screened(&few), &[], &[], false)));
    assert!(text.contains(": all of 6 nodes") && !text.contains("fastest of"), "{text}");
    let rows = rows(&fleet, &screening, &[]);
    let read: Vec<ScreenRow> = serde_json::from_str(&json::fleet(&rows)).unwrap();
    assert_eq!(read, rows);
    let schema = schemars::schema_for!(ScreenRow).to_value();
    let validator = Validator::of(&schema).unwrap();
    assert!(rows.iter().all(|row| validator.is_valid(&serde_json::to_value(row).unwrap())));
    let metrics: HashSet<Metric> = rows.iter().map(|row| row.metric).collect();
    assert!(metrics.len() >= 6, "{metrics:?}");
    let table = csv::fleet(&rows);
    assert!(table.starts_with("metric,cohort,host,file,group,deviation,p,"), "{table}");
    assert_eq!(table.lines().count(), rows.len() + 1);
    #[cfg(feature = "report")]
    {
        let page = membound_analyze::output::html::section::document(sections::fleet::document(
            &fleet,
            &screening,
            &[],
            &[],
            true,
        ));
        // Stays for a look.
        std::fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("fleet.html"), &page).unwrap();
        for part in ["A fleet of 200 nodes", "15 of 16 memory modules", "Nodes and groups"] {
            assert!(page.contains(part), "{part}");
        }
    }
}

/// A machine of two cores that could be any of a fleet.
fn machine(thp: &str) -> Machine {
    let mut files = vec![
        (
            "proc/cpuinfo".to_string(),
            "model name\t: Processor\ncpu family\t: 6\nmodel\t: 1\nstepping\t: 1\nflags\t: fpu\n".to_string(),
        ),
        ("proc/meminfo".into(), "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n".into()),
        ("sys/devices/system/cpu/online".into(), "0-1".into()),
        ("sys/kernel/mm/transparent_hugepage/enabled".into(), thp.into()),
    ];
    for cpu in 0..2 {
        let folder = format!("sys/devices/system/cpu/cpu{cpu}");
        files.push((format!("{folder}/topology/physical_package_id"), "0".into()));
        files.push((format!("{folder}/topology/core_id"), cpu.to_string()));
        files.push((format!("{folder}/topology/core_cpus_list"), cpu.to_string()));
        for (index, size) in [32, 1024, 32768].into_iter().enumerate() {
            let of_cache = |name: &str| format!("{folder}/cache/index{index}/{name}");
            files.push((of_cache("level"), (index + 1).to_string()));
            files.push((of_cache("type"), if index == 0 { "Data" } else { "Unified" }.into()));
            files.push((of_cache("size"), format!("{size}K")));
            files.push((of_cache("coherency_line_size"), "64".into()));
            files.push((of_cache("shared_cpu_list"), if index == 2 { "0-1".into() } else { cpu.to_string() }));
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    imitation::machine(&files)
}

fn cases() -> Vec<Case> {
    let memory = MemorySpec::of(MemoryKind::Thp);
    let mut cases = Vec::new();
    for size in [
        Bytes::kib(16),
        Bytes::kib(24),
        Bytes::kib(512),
        Bytes::kib(768),
        Bytes::mib(16),
        Bytes::mib(256),
        Bytes::mib(512),
    ] {
        for kernel in ["load", "copy", "triad"] {
            for cpus in [vec![0], vec![0, 1]] {
                cases.push(plan::steady(kernel, Width::W256, StoreKind::Regular, memory, cpus, size));
            }
        }
    }
    cases
}

/// A node's record: as fast as its neighbours but for chance, `memory` times that in memory.
fn node(host: &str, memory: f64, seed: u64) -> Record {
    let mut random = Simulated::new(seed, Noise::Normal);
    let mut visits = Vec::new();
    for round in 0..2 {
        for case in cases() {
            let is_large = case.working_set >= Bytes::mib(128);
            let bps = if is_large { 1e10 * memory } else { 1e11 } * (1.0 + 0.005 * random.normal());
            visits.push(Measurement { round, ..imitation::visit(&case, bps, &[]) });
        }
    }
    let mut record = imitation::record(machine("[always] madvise never"), visits);
    record.header.host = host.into();
    record.header.before.page_cache = Some(Bytes::gib(2));
    let planned = cases().len() as u64;
    record.end = Some(End {
        wall_s: 10.0,
        interrupted: false,
        overran: false,
        planned,
        peak_memory: None,
        after: Environment::default(),
    });
    record
}

fn write(folder: &Path, name: &str, record: &Record) -> PathBuf {
    std::fs::create_dir_all(folder).unwrap();
    let path = folder.join(name);
    by_hand::write(record, &path);
    path
}

/// Twelve nodes, of which n3 lacks an eighth of its memory's bandwidth.
fn fleet_of_files(folder: &Path) {
    for index in 0..12 {
        let memory = if index == 3 { 0.875 } else { 1.0 };
        write(folder, &format!("n{index}.jsonl"), &node(&format!("n{index}"), memory, 50 + index));
    }
}

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    tried(&[&["fleet", "screen"], arguments].concat())
}

#[test]
fn the_command_finds_the_node() {
    let folder = tempfile::tempdir().unwrap();
    fleet_of_files(folder.path());
    let path = folder.path().to_str().unwrap();
    let (code, text, talk) = run(&[path]);
    println!("{text}");
    assert_eq!(code, Some(0), "{talk}");
    let text = crate::common::on_one_line(&text);
    let says =
        "1 of 12 nodes of 1 kind of hardware is slower than its neighbours: n3 (as if memory channels were missing).";
    assert!(text.starts_with(says), "{text}");
    assert!(text.contains("- n3: as if memory channels were missing: memory "), "{text}");
    assert!(text.contains("L1, L2, L3 as its neighbours"), "{text}");
    assert_eq!(run(&[path, "--fail-on-findings"]).0, Some(1));
    assert_eq!(run(&[path, "--fail-on-findings", "--noise", "50"]).0, Some(0));
    // 1 is the verdict alone: a page or a record that is not to be had is 2, unless a node is slower.
    let existing = folder.path().join("n0.jsonl");
    let gate = [path, "--fail-on-findings", "--html", existing.to_str().unwrap()];
    let (code, text, talk) = run(&[&gate[..], &["--noise", "50"]].concat());
    assert!(code == Some(2) && talk.contains("--html") && !text.is_empty(), "{talk}");
    assert_eq!(run(&gate).0, Some(1));
    let broken = tempfile::tempdir().unwrap();
    std::fs::write(broken.path().join("n99.jsonl"), "no record\n").unwrap();
    let both = [path, broken.path().to_str().unwrap(), "--fail-on-findings"];
    let (code, text, talk) = run(&[&both[..], &["--noise", "50"]].concat());
    assert!(code == Some(2) && talk.contains("can't be judged: 1 record could not be used"), "{talk}");
    assert!(text.contains("n99.jsonl"), "{text}");
    assert_eq!((run(&both).0, run(&both[..2]).0), (Some(1), Some(1)));
    // Who screens nothing lets nothing pass.
    let alone = folder.path().join("n0.jsonl");
    let (code, text, talk) = run(&[alone.to_str().unwrap(), "--fail-on-findings"]);
    assert!(code == Some(2) && talk.contains("can't be judged: no node was screened"), "{talk}");
    assert!(text.contains("none screened"), "{text}");
    let (code, json, talk) = run(&[path, "--format", "json"]);
    let rows: Vec<ScreenRow> = serde_json::from_str(&json).unwrap();
    assert_eq!((code, rows[0].host.as_deref(), rows[0].metric), (Some(0), Some("n3"), Metric::Finding));
    assert_eq!(rows[0].cause.as_deref(), Some(CauseKind::FewChannels.word()));
    assert!(talk.contains("1 of 12 nodes"), "{talk}");
    // The same fleet as its own baseline; a topology; a page.
    let topology = folder.path().join("topology.conf");
    std::fs::write(&topology, "SwitchName=s1 Nodes=n[0-5]\nSwitchName=s2 Nodes=n[6-10]\n").unwrap();
    let page = folder.path().join("x.html");
    let topology = topology.to_str().unwrap();
    let (code, text, talk) = run(&[path, "--baseline", path, "--topology", topology]);
    assert_eq!(code, Some(0), "{talk}");
    let text = crate::common::on_one_line(&text);
    assert!(
        text.contains("none of 12 nodes lost speed") && text.contains("No switch in the topology names n11."),
        "{text}"
    );
    if cfg!(feature = "report") {
        assert_eq!(run(&[path, "--html", page.to_str().unwrap()]).0, Some(0));
        assert!(std::fs::read_to_string(&page).unwrap().contains("A fleet of 12 nodes"));
    }
}

/// A node all of whose reads fail has too few figures to be judged by, or none: that is no pass.
#[test]
fn what_crashed_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    for index in 0..6 {
        let mut record = node(&format!("n{index}"), 1.0, 50 + index);
        let is_hit = |visit: &&mut Measurement| match index {
            // One of two visits: 14 cases. Too little memory, on another node, is no failure.
            2 => visit.round == 1 && visit.case.to_string().starts_with("load"),
            4 => true,
            _ => false,
        };
        for visit in record.measurements.iter_mut().filter(is_hit) {
            visit.outcome = match index {
                2 => Outcome::Crashed { reason: "SIGILL".into() },
                _ => Outcome::Unavailable { reason: "too little memory".into() },
            };
        }
        write(folder.path(), &format!("n{index}.jsonl"), &record);
    }
    let (code, text, talk) = run(&[path]);
    assert_eq!(code, Some(0), "{talk}");
    let text = crate::common::on_one_line(&text);
    let says = "Cases failed on 1 of 6 nodes: n2 (14 cases crashed or came to wrong results). - None of 5 nodes of 1 kind of hardware \
                deviates from its neighbours by more than chance.";
    assert!(text.starts_with(says), "{text}");
    assert!(text.contains("n4: nothing was measured that could be compared."), "{text}");
    assert!(text.contains("test: membound report "), "{text}");
    assert_eq!(run(&[path, "--fail-on-findings"]).0, Some(1));
    let (_, json, _) = run(&[path, "--format", "json"]);
    let rows: Vec<ScreenRow> = serde_json::from_str(&json).unwrap();
    let sentence = "n2: 14 cases crashed or came to wrong results";
    assert_eq!((rows[0].metric, rows[0].sentence.as_deref()), (Metric::Finding, Some(sentence)));
    assert_eq!(rows[0].direction, Some(Direction::Failed));
    // Four of a kind, of which one has no figure, are too few.
    let files = [0, 1, 3, 4].map(|node| folder.path().join(format!("n{node}.jsonl")).to_str().unwrap().to_string());
    let few: Vec<&str> = files.iter().map(String::as_str).chain(["--fail-on-findings"]).collect();
    let (code, text, talk) = run(&few);
    assert!(code == Some(2) && text.contains("only 3 with figures of a kind"), "{text}{talk}");
    // Nor does it need neighbours.
    let alone = folder.path().join("n2.jsonl");
    assert_eq!(run(&[alone.to_str().unwrap(), "--fail-on-findings"]).0, Some(1));
}

/// What two threads get from memory where the host has the CPUs of a guest far apart is another figure: no node is fast or slow by how
/// often it was met.
#[test]
fn nodes_are_compared_where_their_hosts_had_the_cpus_alike() {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..12u64 {
        let memory = if index == 3 { 0.875 } else { 1.0 };
        let mut record = node(&format!("n{index}"), memory, 50 + index);
        let mut random = Simulated::new(90 + index, Noise::Normal);
        // The first nodes meet mostly one place, the last the other.
        let share_far = 0.2 + 0.6 * index as f64 / 11.0;
        for visit in record.measurements.iter_mut().filter(|visit| visit.case.threads() == 2) {
            let is_far = random.random.f64() < share_far;
            let is_large = visit.case.working_set >= Bytes::mib(128);
            let Outcome::Measured(measured) = &mut visit.outcome else { panic!("{visit:?}") };
            let samples = &mut measured.samples;
            if is_far && is_large {
                samples.ticks.iter_mut().for_each(|ticks| *ticks = *ticks * 2 / 3);
            }
            let hand_over_ticks = vec![vec![if is_far { 400 } else { 60 }; samples.ticks.len()]];
            let probed = ProbeSamples { chain_links: 1, wide_adds: 1, hand_over_ticks, ..ProbeSamples::default() };
            samples.probes = Some(probed);
        }
        write(folder.path(), &format!("n{index}.jsonl"), &record);
    }
    let (code, text, talk) = run(&[folder.path().to_str().unwrap()]);
    println!("{text}");
    assert_eq!(code, Some(0), "{talk}");
    let text = crate::common::on_one_line(&text);
    assert!(text.starts_with("1 of 12 nodes of 1 kind of hardware is slower than its neighbours: n3 ("), "{text}");
}

#[test]
fn bad_records_are_told_and_the_others_screened() {
    let folder = tempfile::tempdir().unwrap();
    fleet_of_files(folder.path());
    let path = folder.path().to_str().unwrap();
    // A second record of n1, one whose gathering was cut off, one from a later membound, one that began in the future, one that is none.
    write(folder.path(), "again.jsonl", &node("n1", 1.0, 99));
    let whole = std::fs::read(folder.path().join("n5.jsonl")).unwrap();
    std::fs::remove_file(folder.path().join("n5.jsonl")).unwrap();
    std::fs::write(folder.path().join("n5.jsonl.part"), &whole[..whole.len() * 3 / 4]).unwrap();
    std::fs::write(folder.path().join("v9.jsonl"), "{\"type\":\"header\",\"schema\":99,\"tool\":\"membound 9\"}\n")
        .unwrap();
    let mut future = node("n20", 1.0, 98);
    future.header.started_unix_s = 4_000_000_000;
    write(folder.path(), "future.jsonl", &future);
    std::fs::write(folder.path().join("junk.jsonl"), "hello").unwrap();
    std::fs::write(folder.path().join("notes.txt"), "hello").unwrap();
    let (code, text, talk) = run(&[path]);
    assert_eq!(code, Some(1), "{talk}");
    let text = crate::common::on_one_line(&text);
    for part in [
        "1 of 13 nodes",
        "n1 has several records: they are kept apart",
        "1 record did not come to its end",
        "v9.jsonl has record schema 99",
        "future.jsonl is from the future: its run began 2096-10-02",
        "junk.jsonl is not a membound record",
    ] {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    // Nothing there, nothing usable, a single node, bad flags.
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let (code, text, talk) = run(&[empty.to_str().unwrap()]);
    assert!(code == Some(2) && text.is_empty() && talk.contains("holds no record"), "{talk}");
    let junk = folder.path().join("junk.jsonl");
    let (code, _, talk) = run(&[junk.to_str().unwrap(), "/no/such/file.jsonl"]);
    assert!(code == Some(2) && talk.contains("none of 2 records can be used"), "{talk}");
    let lone = folder.path().join("n2.jsonl");
    let (code, text, _) = run(&[lone.to_str().unwrap()]);
    assert!(code == Some(0) && text.contains("none screened") && text.contains("alone of its kind"), "{text}");
    let (code, _, talk) = run(&[path, "--topology", junk.to_str().unwrap()]);
    assert!(code == Some(2) && talk.contains("'hello' is no Key=value"), "{talk}");
    assert_eq!(run(&[path, "--noise", "much"]).0, Some(2));
}

/// The quick reader and the usual one see the same, whole or damaged.
fn agree(bytes: &[u8]) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    std::fs::write(&path, bytes).unwrap();
    let mut cases = Cases::default();
    match (Record::read(&path), Skim::read(&path, bytes, &mut cases)) {
        (Ok(record), Ok(skim)) => {
            assert_eq!((&*skim.host, &skim.before), (record.header.host.as_str(), &record.header.before));
            assert_eq!(skim.header().unwrap(), record.header);
            assert_eq!((skim.visits.len(), &skim.end), (record.measurements.len(), &record.end));
            for (visit, measurement) in skim.visits.iter().zip(&record.measurements) {
                assert_eq!(cases.get(visit.case), Some(&measurement.case));
                assert_eq!((visit.round, &visit.outcome), (measurement.round, &measurement.outcome));
            }
        }
        (Err(a), Err(b)) => {
            let kind = |text: String| text.split(':').take(2).collect::<String>();
            assert_eq!(kind(a.to_string()), kind(b.to_string()));
        }
        // What is wrong with a machine shows when it is asked for.
        (Err(_), Ok(skim)) => assert!(skim.header().is_err()),
        (a, b) => panic!("{a:?} {b:?}"),
    }
}

#[test]
fn both_readers_agree() {
    let folder = tempfile::tempdir().unwrap();
    let mut record = node("n1", 1.0, 1);
    record.measurements.truncate(5);
    let mut chase = cases()[0].clone();
    chase.work = Work::Chase(Chase::of(Order::Random));
    for (case, outcome) in [
        (chase.clone(), Outcome::Unavailable { reason: "no \"memory\"".into() }),
        (chase.clone(), Outcome::Crashed { reason: "SIGBUS".into() }),
        (chase, Outcome::Invalid { reason: "data".into() }),
    ] {
        record.measurements.push(Measurement::new(case, 0, outcome));
    }
    record.header.machine.dimms = Fact::Known(vec![by_hand::module()]);
    let bytes = std::fs::read(write(folder.path(), "a.jsonl", &record)).unwrap();
    agree(&bytes);
    agree(b"");
    agree(b"\n");
    agree(b"{}\n");
    let text = String::from_utf8(bytes.clone()).unwrap();
    agree(text.replace("\"repetitions\":1", "\"repetitions\":0").as_bytes());
    agree(text.replace("\"schema\":1", "\"schema\":7").as_bytes());
    agree(text.replace("unavailable", "lost").as_bytes());
    agree(text.replace("\"cpus\":[0],", "\"cpus\":[],").as_bytes());
    let first = text.lines().next().unwrap();
    agree(format!("{text}{first}\n").as_bytes());
    agree(format!("{first}\n\n  \n").as_bytes());
    agree(format!("{first}\nhalf\n").as_bytes());
    // Cut anywhere.
    for length in (0..bytes.len()).step_by(211) {
        agree(&bytes[..length]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn records_that_were_changed_at_random_are_read_alike(at in 0.0..1f64, letter in "[ -~]", many in 1usize..4) {
        let mut record = node("n1", 1.0, 1);
        record.measurements.truncate(3);
        let folder = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read(write(folder.path(), "a.jsonl", &record)).unwrap();
        let place = (at * (bytes.len() - many) as f64) as usize;
        bytes[place..place + many].fill(letter.as_bytes()[0]);
        agree(&bytes);
    }
}

/// Whoever reads, and in whatever order, the fleet is the same.
#[test]
fn threads_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fleet_of_files(folder.path());
    let files: Vec<PathBuf> = (0..12).map(|index| folder.path().join(format!("n{index}.jsonl"))).collect();
    let found = |threads| {
        let gathered = gather(&files, threads, 4_000_000_000, &Table::default());
        assert!(gathered.unread.is_empty());
        let screening = screened(&gathered.fleet);
        let hosts: Vec<String> = gathered.fleet.nodes.iter().map(|node| node.host.clone()).collect();
        let worst: Vec<(String, String)> =
            screening.findings.iter().map(|f| (f.sentence(), format!("{:.6}", f.worst()))).collect();
        (hosts, worst)
    };
    assert_eq!(found(1), found(4));
    assert_eq!(found(3).1.len(), 1);
    // A figure by hand: 512 MiB at 1e10 B/s but for 0.5 %, in the cell's own unit.
    let gathered = gather(&files[..1], 1, 4_000_000_000, &Table::default());
    let cell = gathered
        .fleet
        .cells
        .iter()
        .position(|cell| cell.what.starts_with("load") && cell.working_set == Bytes::mib(512))
        .unwrap();
    let figure = gathered.fleet.nodes[0].figures.iter().find(|figure| figure.cell as usize == cell).unwrap();
    assert!((f64::from(figure.log) - 1e10f64.ln()).abs() < 0.03, "{figure:?}");
    assert_eq!((gathered.fleet.cells[cell].level.as_str(), gathered.fleet.cells[cell].unit), ("memory", "B/s"));
    assert_eq!(gathered.fleet.nodes[0].facts.clock_hz.map(|hz| (hz / 1e8).round()), Some(30.0));
    let share = gathered.fleet.nodes[0].facts.page_cache_share.unwrap();
    assert!((share - 2.0 / 64.0).abs() < 1e-9, "{share}");
}

#[test]
fn faults_are_all_told_apart() {
    assert_eq!(FAULTS.map(Fault::cause).iter().collect::<HashSet<_>>().len(), FAULTS.len());
}
