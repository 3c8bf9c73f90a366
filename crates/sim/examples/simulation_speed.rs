//! How fast the simulation is: `cargo run --release -p kvasir-sim --example simulation_speed -- TRACE REPLICAS
//! POLICY TIME_SCALE BLOCK_SIZE`.

use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use kvasir_sim::{Options, SimPolicy, Workload, simulate, table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |place: usize, default: &str| args.get(place).cloned().unwrap_or(default.to_owned());
    let workload = Workload::read_trace(Path::new(&arg(0, "conversation_trace.jsonl")))?;
    let mut options = Options {
        replicas: arg(1, "64").parse()?,
        time_scale: arg(3, "1").parse()?,
        ..Options::default()
    };
    options.engine.block_size = arg(4, "512").parse()?;
    let policies: Vec<SimPolicy> =
        arg(2, "latency").split(',').map(str::parse).collect::<Result<_, _>>()?;
    let start = Instant::now();
    let comparison = simulate(&workload, &options, &policies, &mut |_| {})?;
    let seconds = start.elapsed().as_secs_f64();
    writeln!(io::stdout(), "{}\n{seconds:.1} s of real time", table(&comparison))?;
    Ok(())
}
