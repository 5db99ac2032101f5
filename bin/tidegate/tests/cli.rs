//! What the command says where no node runs: help, messages, exit codes, generated files.

mod common;

use std::path::{Path, PathBuf};

use common::{finish, run, tidegate};
use control::api::{CheckReport, DoctorReport};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(directory: &tempfile::TempDir, text: &str) -> String {
    let path = directory.path().join("node.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_is_as_recorded() {
    let help = run(&["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (0, ""));
    insta::assert_snapshot!("help", help.stdout);
    for command in ["run", "check", "doctor", "demo", "stats", "top", "capture"] {
        let help = run(&[command, "--help"]);
        assert_eq!(help.code, 0, "{command}");
        insta::assert_snapshot!(format!("help_{command}"), help.stdout);
    }
}

#[test]
fn wrong_usage_ends_with_2() {
    for arguments in [
        &["demp"][..],
        &["run", "--colour"],
        &["top", "-i", "0"],
        &[],
    ] {
        let run = run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}");
        assert_eq!(run.stdout, "", "{arguments:?}: talk goes to stderr");
        assert!(!run.stderr.is_empty());
    }
    insta::assert_snapshot!("usage_misspelt", run(&["demp"]).stderr);
}

#[test]
fn absent_node_ends_with_3() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("absent.sock");
    let socket = socket.to_str().unwrap();
    for command in [
        &["stats"][..],
        &["top"],
        &["port", "ls"],
        &["route", "ls"],
        &["neighbour", "ls"],
        &["bridge", "ls"],
        &["reload"],
        &["capture"],
    ] {
        let run = run(&[command, &["--socket", socket]].concat());
        assert_eq!(run.code, 3, "{command:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
        assert!(
            run.stderr.contains("help: start one with `tidegate run`"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn check_accepts_every_example() {
    let mut checked = 0;
    for entry in std::fs::read_dir(repository().join("examples")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let run = run(&["check", "-c", path.to_str().unwrap()]);
        assert_eq!(run.code, 0, "{}:\n{}", path.display(), run.stderr);
        assert!(run.stdout.contains(": valid ("), "{}", run.stdout);
        checked += 1;
    }
    assert!(checked >= 5, "the examples are there");
}

#[test]
fn check_shows_the_place_and_ends_with_1() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "[[port]]\nname = \"wan\"\nadresses = []\n");
    let check = run(&["check", "-c", &path]);
    assert_eq!((check.code, check.stdout.as_str()), (1, ""));
    insta::assert_snapshot!(
        "check_misspelt",
        check
            .stderr
            .replace(directory.path().to_str().unwrap(), "DIR")
    );
    assert_eq!(run(&["check", "-c", "/nonexistent/node.toml"]).code, 5);
}

#[test]
fn check_speaks_json() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(
        &directory,
        "[[port]]\nname = \"wan\"\n[idle]\nmode = \"turbo\"\n",
    );
    let check = run(&["check", "--json", "-c", &path]);
    let report: CheckReport = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!((check.code, report.valid), (1, false));
    let problem = &report.problems[0];
    assert_eq!((problem.line, problem.column), (4, 8));
    assert!(problem.message.contains("turbo") && problem.remedy.contains("hybrid"));

    let path = file(&directory, "[[port]]\nname = \"wan\"\n");
    let check = run(&["check", "--json", "-c", &path]);
    let report: CheckReport = serde_json::from_str(&check.stdout).unwrap();
    assert_eq!(
        (check.code, report.valid, report.problems.len()),
        (0, true, 0)
    );
}

#[test]
fn run_refuses_a_wrong_file_before_anything_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "[[port]]\nname = \"wan\"\nmtu = 9000\n");
    let refused = run(&["run", "-c", &path]);
    assert_eq!(refused.code, 1);
    assert!(
        refused.stderr.contains("node.toml:3:7"),
        "{}",
        refused.stderr
    );
}

#[test]
fn doctor_gives_a_remedy_for_whatever_is_not_ok() {
    let doctor = run(&["doctor", "--json", "lo"]);
    let report: DoctorReport = serde_json::from_str(&doctor.stdout).unwrap();
    for check in report.checks.iter().chain(&report.interfaces[0].checks) {
        let fine = check.status == control::api::CheckStatus::Ok;
        assert_eq!(fine, check.remedy.is_none(), "{check:?}");
    }
    for probe in &report.interfaces[0].probes {
        assert!(probe.accepted || probe.reason.is_some(), "{probe:?}");
    }
    assert_eq!(run(&["doctor", "absent0"]).code, 5);
}

#[test]
fn colour_obeys_the_environment_and_the_option() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "[[port]]\nname = 7\n");
    let coloured = |set: &dyn Fn(&mut std::process::Command)| {
        let mut command = tidegate();
        command.args(["check", "-c", &path]);
        set(&mut command);
        finish(&mut command).stderr.contains('\x1b')
    };
    assert!(!coloured(&|_| {}), "a pipe gets no colours");
    assert!(coloured(&|command| {
        command.env("CLICOLOR_FORCE", "1");
    }));
    assert!(coloured(&|command| {
        command.arg("--color=always");
    }));
    assert!(!coloured(&|command| {
        command.env("CLICOLOR_FORCE", "1").arg("--color=never");
    }));
    assert!(!coloured(&|command| {
        command.env("NO_COLOR", "1");
    }));
}

#[test]
fn completions_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert_eq!(script.code, 0);
        for command in [
            "run", "check", "doctor", "demo", "stats", "top", "capture", "reload",
        ] {
            assert!(script.stdout.contains(command), "{shell} lacks {command}");
        }
        assert!(
            !script.stdout.contains("udp-source"),
            "{shell} shows the demo's programs"
        );
    }
}

#[test]
fn completions_are_what_their_shell_reads() {
    if !lab::need::program("completions_are_what_their_shell_reads", "bash") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tidegate.bash");
    std::fs::write(&path, run(&["completions", "bash"]).stdout).unwrap();
    let script = format!(
        "source {}; COMP_WORDS=(tidegate do); COMP_CWORD=1; _tidegate tidegate do tidegate; echo ${{COMPREPLY[@]}}",
        path.display()
    );
    let answer = finish(std::process::Command::new("bash").args(["-c", &script]));
    assert_eq!(answer.stdout.trim(), "doctor", "{}", answer.stderr);
}

#[test]
fn manual_pages_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let written = run(&["man", directory.path().to_str().unwrap()]);
    assert_eq!(written.code, 0, "{}", written.stderr);
    for page in [
        "tidegate.1",
        "tidegate-run.1",
        "tidegate-demo.1",
        "tidegate-capture.1",
        "tidegate.toml.5",
    ] {
        assert!(directory.path().join(page).exists(), "{page}");
    }
    let keys = std::fs::read_to_string(directory.path().join("tidegate.toml.5")).unwrap();
    assert!(keys.contains("latency_budget_us"));
    let page = run(&["man"]);
    assert!(page.stdout.starts_with(".ie"), "{}", &page.stdout[..60]);
}

#[test]
fn a_wrong_rule_is_shown_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let rules = directory.path().join("rules.nft");
    std::fs::write(
        &rules,
        "table inet f {\n chain c {\n  tcp dport http-ish accept\n }\n}\n",
    )
    .unwrap();
    let node = directory.path().join("node.toml");
    // Beside the configuration, as it is named there.
    let text = "[[port]]\nname = \"lan\"\n[firewall]\nrules = \"rules.nft\"\n";
    std::fs::write(&node, text).unwrap();
    let run = run(&["check", "-c", node.to_str().unwrap()]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("rules.nft:3:"), "{}", run.stderr);
}
