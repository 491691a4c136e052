//! Output of other tools: what each figure is, in our units, and what stands beside it in a record.
//! `adapters/README.md` says where each file comes from.

use std::path::Path;

use membound_analyze::across::adapters::tool::{Asks, Foreign};
use membound_analyze::across::adapters::{TOOLS, parse, read, tool_of};
use membound_core::kernel::chase::Order;
use membound_core::kernel::{StoreKind, Width};
use membound_core::units::Bytes;
use membound_core::work::pingpong::MessageMode;
use proptest::prelude::*;

fn sample(name: &str) -> Foreign {
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/adapters").join(name)).unwrap()
}

#[track_caller]
fn check(foreign: &Foreign, name: &str, value: f64) -> Asks {
    let reading = foreign.readings.iter().find(|reading| reading.name == name);
    let reading = reading.unwrap_or_else(|| panic!("no {name}: {:?}", foreign.readings));
    assert!((reading.value / value - 1.0).abs() < 1e-9, "{name}: {} is not {value}", reading.value);
    reading.asks.clone()
}

/// `Triad: 18938.8` MB/s are 18.9388 GB/s; 20,000,000 elements of 8 bytes are 480 MB in three arrays, 320 MB in two.
#[test]
fn stream() {
    let found = sample("stream.txt");
    assert_eq!((found.tool.name, found.readings.len()), ("STREAM", 4));
    let Asks::Bandwidth(triad) = check(&found, "Triad", 18.9388) else { panic!() };
    assert_eq!((triad.kernel, triad.threads, triad.bytes), ("triad", Some(2), Some(Bytes(480_000_000))));
    assert_eq!((triad.stores, triad.is_best), (&[StoreKind::Regular, StoreKind::Nt][..], true));
    let Asks::Bandwidth(copy) = check(&found, "Copy", 15.2913) else { panic!() };
    assert_eq!((copy.kernel, copy.bytes), ("copy", Some(Bytes(320_000_000))));
    let text = "STREAM version 5.10\nThis system uses 4 bytes per array element.\nFunction\nTriad: 1000.0 1 1 1\n";
    let floats = parse(text, Path::new("x")).unwrap();
    assert!(matches!(floats.readings[0].asks, Asks::Nothing("GB/s", _)));
}

/// `MByte/s: 16536.51`; its stream is our triad, its triad Schoenauer's.
#[test]
fn likwid_bench() {
    let found = sample("likwid-bench.txt");
    let Asks::Bandwidth(stream) = check(&found, "stream_avx", 16.53651) else { panic!() };
    assert_eq!((stream.kernel, stream.width, stream.threads), ("triad", Some(Width::W256), Some(2)));
    assert_eq!((stream.stores, stream.bytes), (&[StoreKind::Regular][..], Some(Bytes(255_999_744))));
    let block = "Using 1 threads\nCycles per cacheline:\t1\nMByte/s:\t2000.00\n";
    let of = |flags: &str| parse(&format!("$ likwid-bench {flags}\n{block}"), Path::new("x")).unwrap().readings;
    let Asks::Bandwidth(nt) = of("-w N:1GB:1 -t triad_mem_avx512_fma")[0].asks.clone() else { panic!() };
    assert_eq!((nt.kernel, nt.stores, nt.width), ("schoenauer", &[StoreKind::Nt][..], Some(Width::W512)));
    let unnamed = parse(block, Path::new("x")).unwrap().readings;
    assert!(matches!(&unnamed[0].asks, Asks::Nothing(_, why) if why.contains("command line")));
}

/// 18408.01 MiB/s are 18408.01 x 1,048,576 B/s = 19.3021... GB/s.
#[test]
fn sysbench() {
    let found = sample("sysbench.txt");
    let Asks::Bandwidth(write) = check(&found, "memory write", 18_408.01 * 1_048_576.0 / 1e9) else { panic!() };
    assert_eq!((write.kernel, write.width, write.threads), ("store", Some(Width::Scalar), Some(1)));
    assert_eq!(write.bytes, Some(Bytes(1 << 20)));
    let text = |scope| {
        format!(
            "sysbench 1.0\nNumber of threads: 2\nblock size: 1024KiB\noperation: read\nscope: {scope}\n1 MiB transferred (2000.00 MiB/sec)\n"
        )
    };
    let of = |scope| parse(&text(scope), Path::new("x")).unwrap().readings.remove(0).asks;
    assert!(matches!(of("global"), Asks::Nothing(_, why) if why.contains("share one block")));
    assert!(matches!(of("local"), Asks::Bandwidth(of) if of.bytes == Some(Bytes(2 << 20))));
}

/// Rates are in 2^20 bits per second: 8 bytes at 123.45 Mbps take 64 / (123.45 x 1,048,576) s = 494.4 ns.
#[test]
fn netpipe() {
    let found = sample("netpipe.txt");
    let asks = check(&found, "message, 8 B", 64.0 / (123.45 * 1_048_576.0) * 1e9);
    assert_eq!(asks, Asks::Message(MessageMode::PingPong, Bytes(8)));
    check(&found, "message, 1 B", 8.0 / (3.48 * 1_048_576.0) * 1e9);
}

#[test]
fn osu() {
    let text = "# OSU MPI Latency Test v4.4\n# Size          Latency (us)\n0   0.25\n8192   2.50\n";
    let found = parse(text, Path::new("x")).unwrap();
    assert_eq!(check(&found, "latency, 8 KiB", 2500.0), Asks::Message(MessageMode::PingPong, Bytes(8192)));
    let text = "# OSU MPI Bandwidth Test v4.4\n# Size      Bandwidth (MB/s)\n1048576   12000.00\n";
    let found = parse(text, Path::new("x")).unwrap();
    assert_eq!(check(&found, "bandwidth, 1 MiB", 12.0), Asks::Message(MessageMode::OneWay, Bytes(1 << 20)));
    let text = "# OSU MPI Bi-Directional Bandwidth Test v4.4\n# Size      Bandwidth (MB/s)\n1048576   12000.00\n";
    let found = parse(text, Path::new("x")).unwrap();
    assert!(matches!(check(&found, "bandwidth, 1 MiB", 12.0), Asks::Nothing("GB/s", _)));
}

/// Sizes in MiB to five places: 0.00049 is 512 B.
#[test]
fn lat_mem_rd() {
    let text = "\"stride=64\n0.00049 1.085\n1.00000 3.790\n\n";
    let found = parse(text, Path::new("x")).unwrap();
    let asks = check(&found, "512 B, stride 64", 1.085);
    let orders = &[Order::Backward, Order::Random];
    assert_eq!(asks, Asks::Latency { orders, stride_bytes: 64, bytes: Some(Bytes(512)) });
    check(&found, "1 MiB, stride 64", 3.79);
}

#[test]
fn intel_mlc() {
    let found = sample("mlc.txt");
    assert_eq!(found.readings.len(), 4 + 5 + 4 + 6);
    let Asks::Bandwidth(reads) = check(&found, "ALL Reads", 158.8445) else { panic!() };
    assert_eq!((reads.kernel, reads.threads, reads.bytes), ("load", None, None));
    let Asks::Bandwidth(triad) = check(&found, "Stream-triad like", 128.1587) else { panic!() };
    assert_eq!((triad.kernel, triad.stores), ("triad", &[StoreKind::Nt][..]));
    assert!(matches!(check(&found, "idle latency, node 0 to 0", 82.1), Asks::Latency { bytes: None, .. }));
    assert!(matches!(check(&found, "idle latency, node 0 to 1", 141.0), Asks::Nothing("ns", _)));
    assert!(matches!(check(&found, "reads, node 1 to 1", 79.6783), Asks::Bandwidth(_)));
    check(&found, "loaded latency, delay 00300", 127.88);
    assert!(matches!(check(&found, "1:1 Reads-Writes", 143.3554), Asks::Nothing("GB/s", _)));
}

#[test]
fn nvbandwidth() {
    let found = sample("nvbandwidth.json");
    assert_eq!(found.readings.len(), 4, "N/A and what was waived are no figures");
    let Asks::Copy(work) = check(&found, "host_to_device_memcpy_ce, 0 to 1", 12.36) else { panic!() };
    assert_eq!(work.ends(), "host (pinned) -> cuda:1");
    // The reader gives the command, ours is that of the source.
    assert!(matches!(check(&found, "device_to_device_memcpy_read_ce, 1 to 0", 11.16), Asks::Nothing("GB/s", _)));
}

/// Rows are sources and columns sinks; of the host's memory there is one row, whatever the way.
#[test]
fn ways_of_nvbandwidth() {
    let ends = |test: &str| {
        let rows = r#"[["N/A","2"]]"#;
        let text = format!(r#"{{"nvbandwidth":{{"testcases":[{{"name":"{test}","bandwidth_matrix":{rows}}}]}}}}"#);
        let found = parse(&text, Path::new("x")).unwrap();
        if let Asks::Copy(work) = &found.readings[0].asks { work.ends() } else { "none".into() }
    };
    assert_eq!(ends("host_to_device_memcpy_ce"), "host (pinned) -> cuda:1");
    assert_eq!(ends("device_to_host_memcpy_ce"), "cuda:1 -> host (pinned)");
    assert_eq!(ends("device_to_device_memcpy_write_ce"), "cuda:0 -> cuda:1");
    assert_eq!(ends("device_local_copy"), "cuda:1 -> cuda:1");
    assert_eq!(ends("host_to_device_memcpy_sm"), "none");
    assert_eq!(ends("device_to_host_bidirectional_memcpy_ce"), "none");
}

#[test]
fn faults_name_tool_and_line() {
    let said = |text: &str| parse(text, Path::new("old.txt")).unwrap_err().to_string();
    assert!(said("hello").contains("old.txt is neither a record") && said("hello").contains("lat_mem_rd"));
    let stream = "STREAM version 5.10\nFunction    Best Rate MB/s\nTriad:  fast 1 2 3\n";
    assert_eq!(said(stream), "old.txt:3: this looks like STREAM, but 'fast' is no number above zero");
    assert!(said("STREAM version 5.10\nFunction\n").contains("it holds no figure"));
    assert!(said("{ \"nvbandwidth\" : {").contains("no valid JSON"));
    for value in ["-1", "0", "nan", "inf", "1e300"] {
        assert!(said(&stream.replace("fast", value)).contains("no number above zero"), "{value}");
    }
}

/// Each sample is one tool's alone.
#[test]
fn no_output_is_taken_for_another_tools() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/adapters");
    for (name, tool) in [
        ("stream.txt", "STREAM"),
        ("likwid-bench.txt", "likwid-bench"),
        ("sysbench.txt", "sysbench memory"),
        ("netpipe.txt", "NetPIPE"),
        ("mlc.txt", "Intel MLC"),
        ("lat_mem_rd.txt", "lat_mem_rd"),
        ("osu_latency.txt", "OSU"),
        ("nvbandwidth.json", "nvbandwidth"),
    ] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(tool_of(&text).map(|tool| tool.name), Some(tool), "{name}");
    }
    assert_eq!(TOOLS.len(), 8);
}

proptest! {
    /// Whatever stands behind a tool's signs: figures that are positive numbers, or a fault.
    #[test]
    fn any_text_is_read_or_refused(
        head in prop::sample::select(vec![
            "STREAM version\nFunction\nTriad: ", "likwid-bench -t copy\nCycles per cacheline:\nMByte/s:", "\"stride=", "\"stride=64\n",
            "Memory Latency Checker\nMeasuring idle latencies\n 0 ", "{\"nvbandwidth\":{\"testcases\":[", "# OSU MPI Latency Test\n",
            "1 bytes --> 1 Mbps in ", "sysbench\nblock size:9e99KiB\noperation: read\n transferred (", "",
        ]),
        tail in "[ -~\n\t]{0,80}",
    ) {
        if let Ok(found) = parse(&format!("{head}{tail}"), Path::new("x")) {
            prop_assert!(found.readings.iter().all(|reading| reading.value.is_finite() && reading.value > 0.0));
        }
    }
}
