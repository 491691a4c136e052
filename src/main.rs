//! The `membound` command.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use membound::cli::machine::{self, MachineArgs};
use membound::machine::MachineError;

#[derive(Parser)]
#[command(version, about)]
enum Command {
    Machine(MachineArgs),
}

fn main() -> ExitCode {
    let Command::Machine(args) = Command::parse();
    match machine::run(&args) {
        // A reader that has seen enough and closes the pipe is no failure.
        Ok(text) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("membound: {error}");
            ExitCode::from(if error.is::<MachineError>() { 2 } else { 1 })
        }
    }
}
