//! The same rulesets and the same frames through these rules and through the kernel's nftables.
//!
//! Each random ruleset is loaded with `nft -f` in a namespace, random frames are injected into its interface, and
//! every counter is compared: each rule's, and those of a chain behind that tell verdicts, marks and changed headers
//! apart. `TIDEGATE_RULESETS=1000 cargo test -p tidegate-filter --test kernel` runs longer (about 1 s for 5,000
//! packets); rules about connections are the tracker's tests.

mod common;
mod generate;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Spec;
use filter::lang::{Options, load};
use filter::packet::Hook;
use filter::rules::{Interfaces, NoTrace, Ruleset};
use filter::verdict::{Effects, Verdict};
use lab::links::VethEnd;
use lab::netns::Namespace;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// What stands behind the chain under test: tells what became of each packet that passed.
const BEHIND: &str = "chain behind { type filter hook prerouting priority -120; policy drop;
    meta mark 0 counter
    meta mark 1 counter
    meta mark 2 counter
    meta mark 3 counter
    ip dscp cs1 counter
    ip ttl 9 counter
    tcp dport 25 counter
    tcp option maxseg size 1200 counter
    counter
}\n";

/// Rules whose verdicts depend on connections, which are another test's.
fn without_connections(text: &str) -> String {
    let about_ct = |line: &&str| {
        !line.contains("ct ") && !line.contains("notrack") && !line.contains("oifname")
    };
    let lines: Vec<&str> = text.lines().filter(about_ct).collect();
    let text = lines
        .join("\n")
        .replace("hook forward priority 0", "hook prerouting priority -150");
    let end = text.rfind('}').expect("the table ends");
    format!("{}{BEHIND}}}\n", &text[..end])
}

/// Loads a ruleset, and leaves out the rules that nft refuses (contradictory protocols); returns what is left.
fn load_into(router: &Namespace, text: &str) -> String {
    let mut text = text.to_string();
    for _ in 0..40 {
        let Err(said) = try_nft(router, &["-f", "-"], &text) else {
            return text;
        };
        let refused = said.lines().filter_map(|line| {
            line.strip_prefix("/dev/stdin:")?
                .split(':')
                .next()?
                .parse()
                .ok()
        });
        let refused: Vec<usize> = refused.collect();
        assert!(!refused.is_empty(), "nft: {said}\n{text}");
        let kept = text
            .lines()
            .enumerate()
            .filter(|(at, _)| !refused.contains(&(at + 1)));
        text = kept.map(|(_, line)| format!("{line}\n")).collect();
    }
    panic!("nft refuses too much:\n{text}");
}

fn nft(router: &Namespace, arguments: &[&str], input: &str) -> String {
    try_nft(router, arguments, input)
        .unwrap_or_else(|said| panic!("nft {arguments:?}: {said}\n{input}"))
}

fn try_nft(router: &Namespace, arguments: &[&str], input: &str) -> Result<String, String> {
    let mut command: Command = router.command("nft");
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("nft starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("nft reads");
    let output = child.wait_with_output().expect("nft ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(said);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Packets of each rule's first counter, by chain, in order.
fn kernel_counters(router: &Namespace) -> Vec<(String, Option<u64>)> {
    let listed = nft(router, &["-j", "list", "ruleset"], "");
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let mut counters = Vec::new();
    for rule in listed["nftables"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|item| item.get("rule"))
    {
        let counter = rule["expr"]
            .as_array()
            .expect("a list")
            .iter()
            .find_map(|expr| expr.get("counter"));
        let packets = counter.and_then(|counter| counter["packets"].as_u64());
        counters.push((
            rule["chain"].as_str().unwrap_or_default().to_string(),
            packets,
        ));
    }
    counters
}

fn our_counters(ruleset: &Ruleset) -> Vec<(String, Option<u64>)> {
    let rules = ruleset.rules().iter();
    rules
        .map(|rule| {
            (
                rule.chain.clone(),
                rule.counter.map(|counter| ruleset.counter(counter).0),
            )
        })
        .collect()
}

fn judge_all(ruleset: &Ruleset, specs: &[Spec]) {
    let mut worker = ruleset.worker(0).expect("the only worker");
    for spec in specs {
        let mut frame = spec.frame();
        let mut packet = spec.packet(&mut frame, Hook::Prerouting);
        for base in ruleset.all_base_chains() {
            let mut effects = Effects::default();
            let verdict = ruleset.evaluate(
                base.chain,
                &mut packet,
                &mut effects,
                &mut worker,
                &mut NoTrace,
            );
            if verdict != Verdict::Accept {
                break;
            }
        }
    }
}

#[test]
fn as_the_kernel() {
    let name = "filter::as_the_kernel";
    if !lab::need::root(name) || !lab::need::program(name, "nft") {
        return;
    }
    let rulesets: usize = std::env::var("TIDEGATE_RULESETS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(12);
    let (client, router) = (
        Namespace::new("rules-client").unwrap(),
        Namespace::new("rules-router").unwrap(),
    );
    client.disable_ipv6().unwrap();
    let mut links = client.links().unwrap();
    let inside = VethEnd::new("c0", &client).mac([2, 0, 0, 0, 0, 1]);
    links
        .add_veth(&inside, &VethEnd::new("eth0", &router).mac(ROUTER_MAC))
        .unwrap();
    links.set_up("c0").unwrap();
    router
        .links()
        .unwrap()
        .set_up_and_wait("eth0", Duration::from_secs(5))
        .unwrap();

    let seed = [7; 32];
    let mut runner = TestRunner::new_with_rng(
        Config::default(),
        TestRng::from_seed(RngAlgorithm::ChaCha, &seed),
    );
    let mut sent = 0;
    let run = || -> usize {
        let mut port = io::raw::RawPort::open("c0").expect("a raw port");
        for number in 0..rulesets {
            let text = generate::ruleset_text()
                .new_tree(&mut runner)
                .unwrap()
                .current();
            let text = without_connections(&text);
            let specs = proptest::collection::vec(generate::spec(), 250)
                .new_tree(&mut runner)
                .unwrap()
                .current();
            let specs: Vec<Spec> = specs
                .into_iter()
                .map(|spec| Spec {
                    iif: 1,
                    oif: 0,
                    mark: 0,
                    ct_mark: 0,
                    ..spec
                })
                .collect();
            let counted = "table inet seen { chain every { type filter hook prerouting priority -160; counter\n}\n}\n";
            let text = load_into(&router, &format!("flush ruleset\n{text}{counted}"));
            let text = text.replace(counted, "");
            let interfaces = Interfaces::ethernet(&["eth0"]);
            let options = Options {
                interfaces,
                ..Options::default()
            };
            let ours = load(&text, options).unwrap_or_else(|error| panic!("{error}\n{text}"));
            for spec in &specs {
                port.send(&spec.frame()).expect("a frame is sent");
            }
            judge_all(&ours, &specs);
            sent += specs.len();
            let mut theirs = kernel_counters(&router);
            let started = Instant::now();
            while theirs
                .last()
                .is_none_or(|last| last.1 != Some(specs.len() as u64))
            {
                assert!(
                    started.elapsed() < Duration::from_secs(5),
                    "the kernel saw {:?} of {}",
                    theirs.last(),
                    specs.len()
                );
                std::thread::sleep(Duration::from_millis(2));
                theirs = kernel_counters(&router);
            }
            theirs.pop();
            assert_eq!(
                our_counters(&ours),
                theirs,
                "ruleset {number} of seed {seed:?}\n{text}"
            );
        }
        sent
    };
    let mut run = run;
    let packets = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                client.enter().expect("the namespace");
                run()
            })
            .join()
    });
    println!(
        "{rulesets} rulesets, {} packets: every counter as the kernel's",
        packets.expect("no mismatch")
    );
}
