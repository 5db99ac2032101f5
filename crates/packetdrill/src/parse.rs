//! Reads scripts.

use crate::error::Error;
use crate::syntax::{
    Action, Body, Call, Ecn, Event, LETTERS, Opt, Packet, Script, Segment, Value, When,
};
use wire::tcp::Flags;

/// Nesting of values at most.
const DEPTH_MAX: usize = 16;

/// Reads a script.
///
/// # Errors
/// [`Error::Syntax`] with the line.
pub fn parse(text: &str) -> Result<Script, Error> {
    let mut reader = Reader { text, at: 0 };
    let mut script = Script::default();
    loop {
        reader.skip_space();
        if reader.take("--") {
            let line = reader.until_any("\n ");
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            script.options.push((name.into(), value.into()));
        } else if script.events.is_empty() && reader.peek() == Some('`') {
            script.setup = Some(reader.quoted()?);
        } else {
            break;
        }
    }
    loop {
        reader.skip_space();
        match reader.peek() {
            None => return Ok(script),
            // The command at the end undoes that at the head.
            Some('`') => {
                reader.quoted()?;
            }
            Some(_) => script.events.push(reader.event()?),
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }
    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }
    fn line(&self) -> usize {
        let before = self.text.get(..self.at).unwrap_or_default();
        before.matches('\n').count() + 1
    }
    fn error<T>(&self, wanted: &str) -> Result<T, Error> {
        let here: String = self.rest().chars().take(24).collect();
        let here = here.lines().next().unwrap_or_default().to_owned();
        Err(Error::Syntax {
            line: self.line(),
            wanted: wanted.into(),
            here,
        })
    }
    fn take(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }
    /// Passes over spaces, then takes the token.
    fn next(&mut self, token: &str) -> bool {
        self.skip_space();
        self.take(token)
    }
    fn expect(&mut self, token: &str) -> Result<(), Error> {
        if self.next(token) {
            Ok(())
        } else {
            self.error(&format!("`{token}`"))
        }
    }
    fn while_is(&mut self, is: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !is(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }
    fn until_any(&mut self, ends: &str) -> &'a str {
        self.while_is(|c| !ends.contains(c))
    }
    fn skip_space(&mut self) {
        loop {
            self.while_is(char::is_whitespace);
            if self.rest().starts_with("//") || self.rest().starts_with('#') {
                self.until_any("\n");
            } else if self.take("/*") {
                let rest = self.rest();
                self.at += rest.find("*/").map_or(rest.len(), |end| end + 2);
            } else {
                return;
            }
        }
    }
    fn quoted(&mut self) -> Result<String, Error> {
        self.expect("`")?;
        let text = self.until_any("`").to_owned();
        self.expect("`")?;
        Ok(text)
    }
    fn word(&mut self) -> &'a str {
        self.while_is(|c| c.is_ascii_alphanumeric() || c == '_')
    }
    /// Takes a keyword, not the beginning of a longer word.
    fn keyword(&mut self, word: &str) -> bool {
        self.skip_space();
        let after = self.rest().strip_prefix(word);
        let is_whole =
            after.is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric()));
        if is_whole {
            self.at += word.len();
        }
        is_whole
    }

    fn event(&mut self) -> Result<Event, Error> {
        let line = self.line();
        let time = self.time()?;
        let until = if self.next("...") {
            Some(self.seconds()?)
        } else {
            None
        };
        self.skip_space();
        let action = match self.peek() {
            Some('<') => {
                self.at += 1;
                Action::Inbound(self.packet(true)?)
            }
            Some('>') => {
                self.at += 1;
                Action::Outbound(self.packet(false)?)
            }
            Some('`') => Action::Command(self.quoted()?),
            Some('%') => {
                self.expect("%{")?;
                let rest = self.rest();
                let Some(end) = rest.find("}%") else {
                    return self.error("`}%`");
                };
                self.at += end + 2;
                Action::Code(rest.get(..end).unwrap_or_default().to_owned())
            }
            _ => Action::Call(self.call(until)?),
        };
        Ok(Event { line, time, action })
    }

    fn time(&mut self) -> Result<When, Error> {
        if self.take("*") {
            return Ok(When::Any);
        }
        let is_relative = self.take("+");
        let start = self.seconds()?;
        let mut end = None;
        if self.next("~") {
            self.next("+");
            end = Some(self.seconds()?);
        }
        Ok(if is_relative {
            When::Relative(start, end)
        } else {
            When::Absolute(start, end)
        })
    }

    /// Reads seconds as ns: `1`, `.5`, `0.001`.
    fn seconds(&mut self) -> Result<u64, Error> {
        self.skip_space();
        let whole = self.while_is(|c| c.is_ascii_digit());
        let mut fraction = "";
        if self.rest().starts_with('.') && !self.rest().starts_with("..") {
            self.at += 1;
            fraction = self.while_is(|c| c.is_ascii_digit());
        }
        if whole.is_empty() && fraction.is_empty() {
            return self.error("a time, as 0.1, +0.1 or *");
        }
        let ns: u64 = format!("{fraction:0<9}")
            .get(..9)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or(0);
        let seconds: u64 = if whole.is_empty() {
            0
        } else {
            whole.parse().unwrap_or(u64::MAX)
        };
        match seconds.checked_mul(1_000_000_000) {
            Some(seconds) => Ok(seconds + ns),
            None => self.error("fewer seconds"),
        }
    }

    fn number<T: TryFrom<i64>>(&mut self) -> Result<T, Error> {
        self.skip_space();
        let start = self.at;
        let is_negative = self.take("-");
        let value = if self.take("0x") {
            i64::from_str_radix(self.while_is(|c| c.is_ascii_hexdigit()), 16)
        } else {
            self.while_is(|c| c.is_ascii_digit()).parse()
        };
        let value = value
            .ok()
            .map(|value| if is_negative { -value } else { value });
        match value.and_then(|value| T::try_from(value).ok()) {
            Some(value) => Ok(value),
            None => {
                self.at = start;
                self.error("a number in range")
            }
        }
    }

    fn packet(&mut self, is_inbound: bool) -> Result<Packet, Error> {
        let mut packet = Packet::default();
        let mut quoted = None;
        self.skip_space();
        let close = match self.peek() {
            Some('[') => "]",
            Some('(') => ")",
            _ => "",
        };
        if !close.is_empty() {
            self.at += 1;
            self.skip_space();
            if self.peek().is_some_and(|c| c.is_ascii_digit()) {
                quoted = Some(self.range()?);
            } else {
                packet.ecn = self.ip_info()?;
            }
            self.expect(close)?;
        }
        self.skip_space();
        if self.peek().is_some_and(|c| c.is_ascii_digit()) {
            let from = self.number()?;
            self.expect(">")?;
            packet.ports = Some((from, self.number()?));
        }
        packet.body = if self.keyword("udp") {
            self.expect("(")?;
            let bytes = self.number()?;
            self.expect(")")?;
            Body::Udp(bytes)
        } else if self.keyword("icmp") {
            self.icmp(quoted)?
        } else {
            Body::Tcp(self.segment(is_inbound)?)
        };
        Ok(packet)
    }

    fn ip_info(&mut self) -> Result<Ecn, Error> {
        for (name, ecn) in [
            ("noecn", Ecn::Is(0)),
            ("ect01", Ecn::Capable),
            ("ect0", Ecn::Is(2)),
            ("ect1", Ecn::Is(1)),
            ("ce", Ecn::Is(3)),
        ] {
            if self.keyword(name) {
                return Ok(ecn);
            }
        }
        self.error("noecn, ect0, ect1, ect01 or ce")
    }

    /// Reads `1:1461(1460)` as start and length.
    fn range(&mut self) -> Result<(u32, u32), Error> {
        let start: u32 = self.number()?;
        self.expect(":")?;
        let end: u32 = self.number()?;
        self.expect("(")?;
        let bytes: u32 = self.number()?;
        self.expect(")")?;
        if start.wrapping_add(bytes) != end {
            return self.error("a range whose length is the difference of its ends");
        }
        Ok((start, bytes))
    }

    fn icmp(&mut self, mut quoted: Option<(u32, u32)>) -> Result<Body, Error> {
        self.skip_space();
        let kind = self.word().to_owned();
        self.skip_space();
        let code = if self.rest().starts_with("mtu") {
            ""
        } else {
            self.word()
        };
        let mtu = if self.keyword("mtu") {
            self.number()?
        } else {
            0
        };
        if self.next("[") {
            if self.keyword("udp") {
                self.expect("(")?;
                self.number::<u32>()?;
                self.expect(")")?;
            } else {
                quoted = Some(self.range()?);
            }
            self.expect("]")?;
        }
        Ok(Body::Icmp {
            kind,
            code: code.to_owned(),
            mtu,
            quoted,
        })
    }

    fn segment(&mut self, is_inbound: bool) -> Result<Segment, Error> {
        let mut segment = Segment::default();
        self.skip_space();
        if !self.take("-") {
            let letters = self.until_any(" \t\n");
            for letter in letters.chars() {
                match LETTERS.iter().find(|(known, _)| *known == letter) {
                    Some((_, flag)) => segment.flags |= *flag,
                    None => {
                        self.at -= letters.len();
                        return self.error("control bits out of FSRPUEWA.");
                    }
                }
            }
            if segment.flags.is_empty() {
                return self.error("control bits, or -");
            }
        }
        (segment.seq, segment.bytes) = self.range()?;
        if self.keyword("ack") {
            segment.ack = self.number()?;
        } else if segment.flags.contains(Flags::ACK) && !segment.flags.contains(Flags::RST) {
            return self.error("`ack`, as the control bits have `.`");
        }
        if self.keyword("win") {
            segment.window = Some(self.number()?);
        } else if is_inbound {
            segment.window = Some(0);
        }
        if self.keyword("urg") {
            segment.urgent = self.number()?;
        }
        segment.options = self.options()?;
        Ok(segment)
    }

    fn options(&mut self) -> Result<Option<Vec<Opt>>, Error> {
        let mut options = Vec::new();
        // The `<` of the next event comes after its time.
        if !self.next("<") {
            return Ok(Some(options));
        }
        if self.next("...") {
            self.expect(">")?;
            return Ok(None);
        }
        loop {
            options.push(self.option()?);
            if !self.next(",") {
                break;
            }
        }
        self.expect(">")?;
        Ok(Some(options))
    }

    fn option(&mut self) -> Result<Opt, Error> {
        self.skip_space();
        let start = self.at;
        Ok(match self.word() {
            "nop" => Opt::Nop,
            "eol" => Opt::End,
            "mss" => Opt::Mss(self.number()?),
            "wscale" => Opt::Scale(self.number()?),
            "sackOK" => Opt::SackOk,
            "sack" => {
                let mut blocks = Vec::new();
                loop {
                    self.skip_space();
                    if !self.peek().is_some_and(|c| c.is_ascii_digit()) {
                        break;
                    }
                    let from = self.number()?;
                    self.expect(":")?;
                    blocks.push((from, self.number()?));
                }
                Opt::Sack(blocks)
            }
            "TS" => {
                self.expect("val")?;
                let value = self.number()?;
                self.expect("ecr")?;
                Opt::Stamps(value, self.number()?)
            }
            "FO" => Opt::FastOpen(self.hex()?),
            "FOEXP" => Opt::FastOpenExperimental(self.hex()?),
            "md5" => Opt::Other(19, self.hex()?),
            "opt" => {
                let kind = self.number()?;
                Opt::Other(kind, self.hex()?)
            }
            _ => {
                self.at = start;
                return self.error("a TCP option");
            }
        })
    }

    fn hex(&mut self) -> Result<Vec<u8>, Error> {
        self.skip_space();
        let digits = self.while_is(|c| c.is_ascii_hexdigit());
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return self.error("an even number of hex digits");
        }
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as u8;
        Ok(pairs
            .iter()
            .map(|&[a, b]| digit(a) << 4 | digit(b))
            .collect())
    }

    fn call(&mut self, until: Option<u64>) -> Result<Call, Error> {
        let name = self.word().to_owned();
        if name.is_empty() {
            return self.error("a packet, a system call, a command or assertions");
        }
        self.expect("(")?;
        let arguments = self.values(")", 0)?;
        self.expect("=")?;
        let result = self.value(0)?;
        let mut errno = None;
        self.skip_space();
        if self.peek() == Some('E') {
            errno = Some(self.word().to_owned());
            self.skip_space();
        }
        if self.take("(") {
            self.until_any(")");
            self.expect(")")?;
        }
        Ok(Call {
            until,
            name,
            arguments,
            result,
            errno,
        })
    }

    fn values(&mut self, close: &str, depth: usize) -> Result<Vec<Value>, Error> {
        let mut values = Vec::new();
        if self.next(close) {
            return Ok(values);
        }
        loop {
            values.push(self.value(depth + 1)?);
            if self.next(close) {
                return Ok(values);
            }
            self.expect(",")?;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        if depth > DEPTH_MAX {
            return self.error("a value that is less deep");
        }
        self.skip_space();
        if self.take("...") {
            return Ok(Value::Any);
        }
        match self.peek() {
            Some('[') => {
                self.at += 1;
                Ok(Value::Array(self.values("]", depth)?))
            }
            Some('{') => {
                self.at += 1;
                self.fields(depth)
            }
            Some('"') => {
                self.at += 1;
                let text = self.until_any("\"").to_owned();
                self.expect("\"")?;
                self.next("...");
                Ok(Value::Text(text))
            }
            Some(c) if c.is_ascii_digit() || c == '-' => Ok(Value::Number(self.number()?)),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let word = self.word().to_owned();
                if self.take("(") {
                    return Ok(Value::Apply(word, self.values(")", depth)?));
                }
                let mut symbols = vec![word];
                while self.next("|") {
                    self.skip_space();
                    symbols.push(self.word().to_owned());
                }
                Ok(Value::Symbols(symbols))
            }
            _ => self.error("a value"),
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Value, Error> {
        let mut fields = Vec::new();
        if self.next("}") {
            return Ok(Value::Fields(fields));
        }
        loop {
            self.skip_space();
            let start = self.at;
            let word = self.word();
            // `msg_iov(1)=[...]`
            if self.take("(") {
                self.until_any(")");
                self.expect(")")?;
            }
            let name = if !word.is_empty() && self.next("=") {
                Some(word.to_owned())
            } else {
                self.at = start;
                None
            };
            fields.push((name, self.value(depth + 1)?));
            if self.next("}") {
                return Ok(Value::Fields(fields));
            }
            self.expect(",")?;
        }
    }
}
