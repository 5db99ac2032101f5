//! Raw mode of the terminal, so that any key ends the demo, and its end, whatever ends the demo.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use crossterm::terminal;

/// Waits for the demo's end. Without a word of farewell (`kill -9`) it gives the terminal back as it was,
/// unless somebody else has done so: most interactive shells do. It survives what ends the demo by the
/// keyboard, and ignores SIGTTOU so that it may set a terminal that is not its own any more.
const GUARD: &str = r#"
trap '' TTOU INT TERM HUP QUIT
exec 3</dev/tty || exit
saved=$(stty -g <&3) || exit
echo saved
read word || exit
raw=$(stty -g <&3)
read word && exit
[ "$(stty -g <&3)" = "$raw" ] && stty "$saved" <&3
"#;

/// Raw mode; ends with the value.
#[derive(Debug)]
pub(super) struct RawMode {
    guard: Option<Guard>,
}

impl RawMode {
    /// Enters raw mode.
    pub(super) fn enter() -> std::io::Result<Self> {
        // without a shell or `stty`, only kill -9 leaves a raw terminal behind: `reset` mends it
        let mut guard = Guard::start();
        terminal::enable_raw_mode()?;
        if let Some(guard) = &mut guard {
            guard.say("raw");
        }
        Ok(Self { guard })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // a terminal that has gone needs no restoring
        let _ = terminal::disable_raw_mode();
        if let Some(mut guard) = self.guard.take() {
            guard.say("done");
            let _ = guard.child.wait();
        }
    }
}

/// A shell that outlives the demo.
#[derive(Debug)]
struct Guard {
    child: Child,
    stdin: ChildStdin,
}

impl Guard {
    fn start() -> Option<Self> {
        let mut child = Command::new("sh")
            .args(["-c", GUARD])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let stdin = child.stdin.take()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take()?)
            .read_line(&mut line)
            .ok()?;
        if line == "saved\n" {
            return Some(Self { child, stdin });
        }
        let _ = child.wait();
        None
    }

    fn say(&mut self, word: &str) {
        // one that has gone guards nothing
        let _ = writeln!(self.stdin, "{word}");
    }
}
