//! `cargo xtask kernels`: the kernel's programs on other kernels than this machine's. Debian's oldest and newest stock
//! images boot under QEMU's emulation, with a memory disk that has one test and nothing else.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::Message;

use crate::workspace;

/// The test that runs there.
const TEST: &str = "every_program_loads_and_answers";
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// Has the shell of the memory disk, as it needs no library.
const BUSYBOX: &str = "/bin/busybox";
/// A boot takes 10 s, and the verifier some seconds a program; a busy machine has more patience.
const SECONDS_MAX: &str = "240";
const MIRROR: &str = "http://deb.debian.org/debian";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Debian's suites whose kernels are tried, and why.
const SUITES: &[(&str, &str)] = &[
    ("bookworm", "6.1, the oldest that the programs are for"),
    ("sid", "Debian's newest"),
];
const INIT: &str = "#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
echo kernel $(/bin/busybox uname -r)
/kernel --test-threads=1 --exact TEST 2>&1
/bin/busybox poweroff -f
";

/// Boots each kernel; tells whether the test passed on all.
pub(crate) fn run() -> Result<bool> {
    if !cfg!(target_arch = "x86_64") {
        println!("SKIPPED other kernels: Debian's images are tried on x86-64 only");
        return Ok(true);
    }
    for (program, package) in [(QEMU, "qemu-system-x86"), (BUSYBOX, "busybox-static")] {
        if !Path::new(program).exists() {
            println!("SKIPPED other kernels: there is no {program} (package {package})");
            return Ok(true);
        }
    }
    let folder = workspace::root()?.join("target/kernels");
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let disk = memory_disk(&folder)?;
    let mut good = true;
    for (suite, why) in SUITES {
        match kernel(&folder.join(suite), suite) {
            Ok(kernel) => good &= boots(&kernel, &disk, why)?,
            Err(error) => println!("SKIPPED the kernel of {suite} ({why}): {error:#}"),
        }
    }
    Ok(good)
}

/// Boots a kernel and shows what the test said.
fn boots(kernel: &Path, disk: &Path, why: &str) -> Result<bool> {
    let done = Command::new("timeout")
        .args([SECONDS_MAX, QEMU, "-accel", "tcg", "-cpu", "max"])
        .args(["-m", "512", "-smp", "1", "-nographic", "-nic", "none"])
        .args(["-no-reboot", "-append"])
        .arg("console=ttyS0 quiet panic=-1 mitigations=off no_timer_check tsc=reliable")
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(disk)
        .stdin(Stdio::null())
        .output()
        .context(QEMU)?;
    let text = String::from_utf8_lossy(&done.stdout);
    // Control sequences of the firmware stand before the first line.
    let of_test = |line: &'_ str| {
        let start = if line.starts_with("test ") {
            Some(0)
        } else {
            line.find("kernel ")
        };
        start.map(|start| line[start..].trim_end().to_owned())
    };
    let lines: Vec<String> = text.lines().filter_map(of_test).collect();
    println!("{} ({why}):", kernel.display());
    for line in &lines {
        println!("{line}");
    }
    let passed = lines
        .iter()
        .any(|line| line.starts_with("test result: ok. 1 passed"));
    if !passed {
        println!("{text}\n{}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(passed)
}

/// Makes the memory disk: a shell, the test program, its libraries.
fn memory_disk(folder: &Path) -> Result<PathBuf> {
    let root = folder.join("root");
    if root.exists() {
        std::fs::remove_dir_all(&root)?;
    }
    for name in ["bin", "proc", "sys", "tmp"] {
        std::fs::create_dir_all(root.join(name))?;
    }
    let test = test_program()?;
    std::fs::copy(BUSYBOX, root.join("bin/busybox"))?;
    std::fs::copy(&test, root.join("kernel"))?;
    for library in libraries(&test)? {
        let to = root.join(library.strip_prefix("/").unwrap_or(&library));
        std::fs::create_dir_all(to.parent().unwrap_or(&root))?;
        std::fs::copy(&library, to)?;
    }
    let init = root.join("init");
    std::fs::write(&init, INIT.replace("TEST", TEST))?;
    done(Command::new("chmod").arg("755").arg(&init))?;
    let mut files = vec![OsString::from(".")];
    let mut open = vec![PathBuf::new()];
    while let Some(inner) = open.pop() {
        for entry in std::fs::read_dir(root.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            files.push(path.clone().into());
            if entry.file_type()?.is_dir() {
                open.push(path);
            }
        }
    }
    let disk = folder.join("disk.cpio");
    let mut packer = Command::new(BUSYBOX)
        .args(["cpio", "-o", "-H", "newc"])
        .current_dir(&root)
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&disk)?)
        .stderr(Stdio::null())
        .spawn()?;
    let mut list = packer.stdin.take().context("stdin was piped")?;
    list.write_all(files.join(&OsString::from("\n")).as_encoded_bytes())?;
    drop(list);
    ensure!(packer.wait()?.success(), "{BUSYBOX} cpio failed");
    Ok(disk)
}

/// Builds the test program and tells where it is.
fn test_program() -> Result<PathBuf> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let messages = done(
        Command::new(cargo)
            .args(["test", "-p", "tidegate-kernel-cache", "--test", "kernel"])
            .args(["--no-run", "--message-format=json"])
            .current_dir(workspace::root()?),
    )?;
    Message::parse_stream(messages.as_bytes())
        .filter_map(Result::ok)
        .filter_map(|message| match message {
            Message::CompilerArtifact(artifact) if artifact.target.name == "kernel" => {
                artifact.executable
            }
            _ => None,
        })
        .last()
        .map(Into::into)
        .context("cargo built no test program `kernel`")
}

/// Returns the shared libraries of a program, with the one that loads them.
fn libraries(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let listing = done(Command::new("ldd").arg(program))?;
    Ok(listing
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
        .map(PathBuf::from)
        .collect())
}

/// Returns a suite's stock kernel, which is fetched if it is not there.
fn kernel(folder: &Path, suite: &str) -> Result<PathBuf> {
    let kept = folder.join("vmlinuz");
    if kept.exists() {
        return Ok(kept);
    }
    println!("xtask: fetching the kernel of Debian's {suite}");
    let apt = Apt::new(folder, suite)?;
    // The name of an image's package has its version; newer ones have the file in a package of its own.
    let mut package = "linux-image-amd64".to_owned();
    for kind in ["linux-image-", "linux-binary-"] {
        match apt.dependency(&package, kind)? {
            Some(found) => package = found,
            None if kind == "linux-binary-" => {}
            None => bail!("{package} names no kernel"),
        }
    }
    done(apt.command("apt-get").args(["download", "-q", &package]))?;
    let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb");
    let archive = files(folder)?.into_iter().find(is_package);
    let archive = archive.with_context(|| format!("{package} was not fetched"))?;
    let unpacked = folder.join("unpacked");
    done(Command::new("dpkg").arg("-x").arg(&archive).arg(&unpacked))?;
    let image = image_in(&unpacked)?.with_context(|| format!("{package} has no kernel"))?;
    std::fs::rename(image, &kept)?;
    std::fs::remove_dir_all(&unpacked)?;
    std::fs::remove_file(archive)?;
    Ok(kept)
}

/// apt with the packages of one suite, beside this machine's.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path, suite: &str) -> Result<Self> {
        for name in ["lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(folder.join(name))?;
        }
        let source = format!("deb [signed-by={KEYS}] {MIRROR} {suite} main\n");
        std::fs::write(folder.join("sources.list"), source)?;
        let apt = Self {
            folder: folder.to_owned(),
        };
        done(apt.command("apt-get").args(["update", "-q"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        for (option, place) in [
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::State::lists", "lists"),
            ("Dir::Cache", "cache"),
        ] {
            let place = self.folder.join(place);
            command
                .arg("-o")
                .arg(format!("{option}={}", place.display()));
        }
        command
            .args(["-o", "Dir::Etc::sourceparts=-"])
            .args(["-o", "Acquire::Retries=3"])
            .current_dir(&self.folder);
        command
    }

    /// Returns the package that `package` depends on and whose name starts so.
    fn dependency(&self, package: &str, start: &str) -> Result<Option<String>> {
        let listing = done(self.command("apt-cache").args(["depends", package]))?;
        let mut words = listing.split_whitespace().skip(1);
        Ok(words
            .find(|word| word.starts_with(start))
            .map(str::to_owned))
    }
}

/// Finds the file of a kernel below a folder.
fn image_in(folder: &Path) -> Result<Option<PathBuf>> {
    let mut open = vec![folder.to_owned()];
    while let Some(at) = open.pop() {
        for path in files(&at)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("vmlinuz") && path.is_file() {
                return Ok(Some(path));
            }
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            }
        }
    }
    Ok(None)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    Ok(entries.collect::<Result<_, _>>()?)
}

/// Runs a command and returns what it printed.
fn done(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        command.get_program().display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
