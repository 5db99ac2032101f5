//! `tidegate demo --ndn`: consumer - node - producer in three namespaces, joined by Ethernet frames of NDN.
//!
//! The consumer asks for new names first, which the node forwards, then for few names again and again, which its
//! content store answers. Applications are programs of their own at the ends: python-ndn's producer where it is
//! installed, ours otherwise.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use control::api::NdnInfo;
use control::socket::Client;
use lab::{Line as Topology, LineOptions, Namespace};
use serde_json::{Value, json};

use crate::cli::{DemoArgs, DemoDriver, Global};
use crate::exit::{Exit, Failure};
use crate::{output, view};

/// Where all names begin.
const PREFIX: &str = "/demo";
/// How long a process may take to start.
const PATIENCE: Duration = Duration::from_secs(15);
/// Seconds without `--seconds`.
const SECONDS: u32 = 12;
/// Names that the second part asks for.
const FEW_NAMES: u64 = 500;

const PYTHON_PRODUCER: &str = "
from ndn.app import NDNApp
from ndn.security.keychain.keychain_digest import KeychainDigest
app = NDNApp(keychain=KeychainDigest())
@app.route('/demo')
def on_interest(name, param, _app_param):
    app.put_data(name, content=b'x' * 1000, freshness_period=60000)
app.run_forever()
";

/// A child that ends with the demo.
#[derive(Debug)]
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory that goes away with the demo.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        // What remains is small and in a directory for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// All that runs; dropped in this order.
#[derive(Debug)]
struct Stage {
    _producer: Process,
    producer: &'static str,
    _nodes: Vec<Process>,
    directory: Scratch,
    _topology: Topology,
}

pub(super) fn run(global: &Global, args: &DemoArgs) -> Result<(), Failure> {
    eprintln!("building namespaces consumer - node - producer, with a forwarder in each");
    let stage = Stage::build(args.driver)?;
    let seconds = args.seconds.unwrap_or(SECONDS);
    eprintln!("the producer is {}", stage.producer);
    let half = f64::from(seconds) / 2.0;
    let forwarded = stage.part(global, "new names: the node forwards", u64::MAX, half)?;
    let cached = stage.part(
        global,
        "few names: the content store answers",
        FEW_NAMES,
        half,
    )?;
    let info = stage.info()?;
    if global.json {
        output::print_json(&json!({
            "producer": stage.producer,
            "forwarded": forwarded,
            "cached": cached,
            "ndn": info,
        }))?;
    } else {
        output::print(&view::named_data(&info))?;
    }
    let answered = |part: &Value| part["data"].as_u64().unwrap_or(0);
    if answered(&forwarded) == 0 || answered(&cached) == 0 || info.store.hits == 0 {
        return Err(
            Failure::message(Exit::Failed, "no Data came through the node")
                .remedy("see `tidegate doctor`; try `tidegate demo --ndn --driver af-packet`"),
        );
    }
    Ok(())
}

impl Stage {
    fn build(driver: DemoDriver) -> Result<Self, Failure> {
        let topology = Topology::new("tgd", LineOptions::default())
            .map_err(|error| Failure::new(Exit::Refused, error).remedy("run it as root"))?;
        let path = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        let directory = Scratch(path);
        let (left, right) = (&topology.left, &topology.right);
        // The ends cache nothing, so that the node's cache is seen.
        let none = "cache_packets = 1\n";
        let ends = [
            ("consumer", &left.namespace, vec![&left.device], none),
            (
                "node",
                &topology.node,
                vec![&left.node_device, &right.node_device],
                "",
            ),
            ("producer", &right.namespace, vec![&right.device], none),
        ];
        let mut nodes = Vec::new();
        for (name, namespace, devices, more) in ends {
            nodes.push(start(
                &directory.0,
                name,
                namespace,
                &devices,
                driver,
                more,
            )?);
        }
        for (name, mac, port) in [
            ("consumer", &left.node_mac, "p0"),
            ("node", &right.mac, "p1"),
        ] {
            let mac: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            let remote = format!("ether://[{}]", mac.join(":"));
            let local = format!("dev://{port}");
            ndn(
                &directory.0,
                name,
                &["face", "create", &remote, "--local", &local],
            )?;
            ndn(&directory.0, name, &["route", "add", PREFIX, &remote])?;
        }
        let (producer, name) = start_producer(&directory.0)?;
        let stage = Self {
            _producer: producer,
            producer: name,
            _nodes: nodes,
            directory,
            _topology: topology,
        };
        let first = format!("{PREFIX}/first");
        let start = Instant::now();
        while ndn(
            &stage.directory.0,
            "consumer",
            &["peek", &first, "-l", "500"],
        )
        .is_err()
        {
            if start.elapsed() > PATIENCE {
                return Err(Failure::message(Exit::Failed, "no Data crossed the node")
                    .remedy("see `tidegate doctor`; try `--driver af-packet`"));
            }
        }
        Ok(stage)
    }

    /// Reads the node's figures.
    fn info(&self) -> anyhow::Result<NdnInfo> {
        let stats = Client::connect(&self.directory.0.join("node.control"))?.stats()?;
        stats.ndn.context("the node has no NDN forwarder")
    }

    /// Lets the consumer ask for some time, and shows the node meanwhile; returns what the consumer counted.
    fn part(&self, global: &Global, what: &str, names: u64, seconds: f64) -> anyhow::Result<Value> {
        let mut command = program(&self.directory.0, "consumer")?;
        let names = names.min(1 << 40).to_string();
        let consumer = command
            .args([
                "--json", "ndn", "traffic", "client", PREFIX, "--window", "64",
            ])
            .args(["--names", &names, "--seconds", &seconds.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        if !global.json {
            output::print(&format!("\n{what}\n")).map_err(said)?;
            output::print(" seconds  Interests/s  Data/s  hits/s  pending  FIB  cached\n")
                .map_err(said)?;
        }
        let start = Instant::now();
        let mut before = (Instant::now(), self.info()?);
        while start.elapsed().as_secs_f64() + 0.5 < seconds {
            std::thread::sleep(
                Duration::from_millis(1000).min(Duration::from_secs_f64(seconds / 3.0)),
            );
            let now = (Instant::now(), self.info()?);
            let time = (now.0 - before.0).as_secs_f64();
            let rate = |of: fn(&NdnInfo) -> u64| (of(&now.1) - of(&before.1)) as f64 / time;
            if !global.json {
                let line = format!(
                    "{:>8.1}  {:>11.0}  {:>6.0}  {:>6.0}  {:>7}  {:>3}  {:>6}\n",
                    start.elapsed().as_secs_f64(),
                    rate(|info| info.in_interests),
                    rate(|info| info.out_data),
                    rate(|info| info.store.hits),
                    now.1.pit_entries,
                    now.1.fib_prefixes,
                    now.1.store.packets,
                );
                output::print(&line).map_err(said)?;
            }
            before = now;
        }
        let output = consumer.wait_with_output()?;
        serde_json::from_slice(&output.stdout).context("the consumer did not say what it got")
    }
}

fn said(failure: Failure) -> anyhow::Error {
    failure
        .error
        .unwrap_or_else(|| anyhow::anyhow!("cannot write the output"))
}

/// Prepares this program as a client of one of the forwarders.
fn program(directory: &Path, node: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    let socket = directory.join(node).with_extension("nfd");
    command.env(
        "NDN_CLIENT_TRANSPORT",
        format!("unix://{}", socket.display()),
    );
    Ok(command)
}

/// Runs a command of `tidegate ndn` against one of the forwarders.
fn ndn(directory: &Path, node: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let output = program(directory, node)?
        .arg("ndn")
        .args(arguments)
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Starts a forwarder in a namespace, with Ethernet faces on devices.
fn start(
    directory: &Path,
    name: &str,
    namespace: &Namespace,
    devices: &[&String],
    driver: DemoDriver,
    more: &str,
) -> anyhow::Result<Process> {
    let driver = match driver {
        DemoDriver::Auto => "auto",
        DemoDriver::AfXdp => "af_xdp",
        DemoDriver::AfPacket => "af_packet",
    };
    let file = directory.join(name).with_extension("toml");
    let socket = file.with_extension("nfd");
    // Three forwarders and their programs share the machine, and maybe one core: who polls takes it from the others.
    let mut text = format!(
        "[idle]\nmode = \"interrupt\"\n[node]\nname = \"{name}\"\nframes_per_worker = 4096\ncontrol_socket = \"{}\"\n",
        file.with_extension("control").display(),
    );
    let mut ports = Vec::new();
    for (index, device) in devices.iter().enumerate() {
        ports.push(format!("\"p{index}\""));
        text.push_str(&format!(
            "[[port]]\nname = \"p{index}\"\ninterface = \"{device}\"\ndriver = \"{driver}\"\n"
        ));
    }
    text.push_str(&format!(
        "[ndn]\nunix = [\"{}\"]\ntcp = []\nudp = []\nethernet = [{}]\n{more}",
        socket.display(),
        ports.join(", "),
    ));
    std::fs::write(&file, text)?;
    let child = namespace
        .command(std::env::current_exe()?)
        .args(["--log", "error", "run", "-c"])
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()?;
    let process = Process(child);
    let start = Instant::now();
    while ndn(directory, name, &["status"]).is_err() {
        if start.elapsed() > PATIENCE {
            bail!("the forwarder of the {name} does not start; its messages stand above");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(process)
}

/// Starts the producer: python-ndn's, if it is installed.
fn start_producer(directory: &Path) -> anyhow::Result<(Process, &'static str)> {
    let has_python = Command::new("python3")
        .args(["-c", "import ndn.app"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let ours = program(directory, "producer")?;
    let (mut command, name) = if has_python {
        let mut python = Command::new("python3");
        python.envs(
            ours.get_envs()
                .filter_map(|(key, value)| Some((key, value?))),
        );
        python.env("HOME", directory).args(["-c", PYTHON_PRODUCER]);
        (python, "python-ndn")
    } else {
        let mut ours = ours;
        ours.args(["ndn", "traffic", "server", PREFIX, "-x", "60000"]);
        (ours, "tidegate ndn traffic server")
    };
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok((Process(child), name))
}
