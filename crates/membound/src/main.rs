//! The `membound` command: parse, run, print; exit 0 done, 1 a measurement failed or is invalid, 2 wrong usage.

use crate::cli::args::Color;
use std::io::ErrorKind;
use std::process::ExitCode;

use membound::cli;
use membound::cli::say;
use membound::cli::usage::Usage;
use membound_analyze::output::terminal::text::at_width;
use membound_core::machine::source::MachineError;
use membound_measure::executor::worker;
use membound_measure::mpi::launcher::launched;

fn main() -> ExitCode {
    say::end_at_a_panic();
    membound::fleet::child::accept_leash();
    if worker::serve() {
        return ExitCode::SUCCESS;
    }
    let cli = cli::parse();
    say::end_faults_with(cli.fault_code());
    if cli.quiet() {
        say::hush();
    }
    match cli.color() {
        // A launcher gives each process a pseudo-terminal, and passes on what it says to wherever its own output goes.
        Color::Auto if launched().is_some() => anstream::ColorChoice::Never.write_global(),
        Color::Auto => anstream::ColorChoice::Auto.write_global(),
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
    match at_width(say::columns(), || cli::execute(&cli)) {
        Ok(done) => print(&done.text, u8::from(done.failed), cli.fault_code()),
        Err(fault) => {
            say::note(format_args!("{fault:#}"));
            ExitCode::from(if fault.is::<Usage>() || fault.is::<MachineError>() { 2 } else { cli.fault_code() })
        }
    }
}

/// A reader that has seen enough and closes the pipe is no failure.
fn print(text: &str, code: u8, fault_code: u8) -> ExitCode {
    match say::answer(text) {
        Err(fault) if fault.kind() != ErrorKind::BrokenPipe => {
            say::note(format_args!("the result can't be printed: {fault}"));
            // What was found stands, be it printed or not.
            ExitCode::from(if code > 0 { code } else { fault_code })
        }
        _ => ExitCode::from(code),
    }
}
