//! Strategy names: which strategy, its version and its parameters (NFD's strategy instance names).

use core::str::FromStr;
use core::time::Duration;

use wire::ndn::name::Name;
use wire::ndn::{NameRef, types};

use super::{AnyStrategy, Asf, BestRoute, Multicast, Random, SelfLearning, Suppression};

/// Why a strategy name cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StrategyNameError {
    /// There is no such strategy, or not of this version.
    #[error(
        "no such strategy; there are best-route/v=5, multicast/v=5, asf/v=5, random/v=1 and self-learning/v=1"
    )]
    Unknown,
    /// A parameter is unknown, is not `name~value`, or is out of range.
    #[error("strategy parameter is unknown, not name~value, or out of range")]
    Parameter,
}

const PREFIX: &str = "/localhost/nfd/strategy";

/// Strategies by the component after [`PREFIX`], with their version.
const KNOWN: [(&str, u64); 5] = [
    ("best-route", 5),
    ("multicast", 5),
    ("asf", 5),
    ("random", 1),
    ("self-learning", 1),
];

/// Makes the strategy that a name stands for; the version may be left out. Also returns the name with its
/// version.
///
/// # Errors
/// [`StrategyNameError`].
pub fn parse(name: NameRef<'_>) -> Result<(AnyStrategy, Name), StrategyNameError> {
    let prefix: Name = PREFIX.parse().map_err(|_| StrategyNameError::Unknown)?;
    if !prefix.as_ref().is_prefix_of(&name) {
        return Err(StrategyNameError::Unknown);
    }
    let mut rest = name.components().skip(prefix.len()).peekable();
    let kind = rest.next().ok_or(StrategyNameError::Unknown)?.value;
    let known = KNOWN.iter().find(|row| row.0.as_bytes() == kind);
    let &(kind, version) = known.ok_or(StrategyNameError::Unknown)?;
    let mut canonical = prefix.with_generic(kind.as_bytes()).with_version(version);
    if let Some(given) = rest.peek().and_then(|c| c.number_of(types::VERSION)) {
        if given != version {
            return Err(StrategyNameError::Unknown);
        }
        rest.next();
    }
    let mut strategy = match kind {
        "best-route" => AnyStrategy::BestRoute(BestRoute::default()),
        "multicast" => AnyStrategy::Multicast(Multicast::default()),
        "asf" => AnyStrategy::Asf(Asf::default()),
        "random" => AnyStrategy::Random(Random),
        _ => AnyStrategy::SelfLearning(SelfLearning),
    };
    for component in rest {
        let text = core::str::from_utf8(component.value);
        let (key, value) = text
            .ok()
            .and_then(|text| text.split_once('~'))
            .ok_or(StrategyNameError::Parameter)?;
        set(&mut strategy, key, value)?;
        canonical = canonical.with_generic(component.value);
    }
    check(&strategy)?;
    Ok((strategy, canonical))
}

fn set(strategy: &mut AnyStrategy, key: &str, value: &str) -> Result<(), StrategyNameError> {
    match strategy {
        AnyStrategy::BestRoute(BestRoute { suppression })
        | AnyStrategy::Multicast(Multicast { suppression }) => {
            set_suppression(suppression, key, value)
        }
        AnyStrategy::Asf(asf) => match key {
            "probing-interval" => milliseconds(value).map(|v| asf.probing_interval = v),
            "max-timeouts" => number(value).map(|v| asf.max_timeouts = v),
            "measurements-lifetime" => milliseconds(value).map(|v| asf.measurements_lifetime = v),
            _ => set_suppression(&mut asf.suppression, key, value),
        },
        AnyStrategy::Random(_) | AnyStrategy::SelfLearning(_) => Err(StrategyNameError::Parameter),
    }
}

fn set_suppression(
    suppression: &mut Suppression,
    key: &str,
    value: &str,
) -> Result<(), StrategyNameError> {
    match key {
        "retx-suppression-initial" => milliseconds(value).map(|v| suppression.initial = v),
        "retx-suppression-max" => milliseconds(value).map(|v| suppression.max = v),
        "retx-suppression-multiplier" => {
            let multiplier: f32 = number(value)?;
            if !(1.0..=1000.0).contains(&multiplier) {
                return Err(StrategyNameError::Parameter);
            }
            suppression.multiplier_milli = (multiplier * 1000.0) as u32;
            Ok(())
        }
        _ => Err(StrategyNameError::Parameter),
    }
}

/// The limits that NFD checks too.
fn check(strategy: &AnyStrategy) -> Result<(), StrategyNameError> {
    let suppression = match strategy {
        AnyStrategy::BestRoute(BestRoute { suppression })
        | AnyStrategy::Multicast(Multicast { suppression }) => suppression,
        AnyStrategy::Asf(asf) => {
            if asf.probing_interval < Duration::from_secs(1)
                || asf.measurements_lifetime <= asf.probing_interval
                || asf.max_timeouts == 0
            {
                return Err(StrategyNameError::Parameter);
            }
            &asf.suppression
        }
        _ => return Ok(()),
    };
    if suppression.initial.is_zero() || suppression.max < suppression.initial {
        return Err(StrategyNameError::Parameter);
    }
    Ok(())
}

fn number<T: FromStr>(text: &str) -> Result<T, StrategyNameError> {
    text.parse().map_err(|_| StrategyNameError::Parameter)
}

fn milliseconds(text: &str) -> Result<Duration, StrategyNameError> {
    let ms: u32 = number(text)?;
    Ok(Duration::from_millis(u64::from(ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn canonical(uri: &str) -> Result<std::string::String, StrategyNameError> {
        let name: Name = uri.parse().unwrap();
        parse(name.as_ref()).map(|(_, name)| name.to_string())
    }

    #[test]
    fn names_versions_and_parameters() {
        let known = [
            (
                "/localhost/nfd/strategy/best-route",
                "/localhost/nfd/strategy/best-route/v=5",
            ),
            (
                "/localhost/nfd/strategy/random/v=1",
                "/localhost/nfd/strategy/random/v=1",
            ),
            (
                "/localhost/nfd/strategy/asf/v=5/probing-interval~30000/max-timeouts~5",
                "/localhost/nfd/strategy/asf/v=5/probing-interval~30000/max-timeouts~5",
            ),
        ];
        for (given, expected) in known {
            assert_eq!(canonical(given).as_deref(), Ok(expected));
        }
        let (strategy, _) = parse(
            "/localhost/nfd/strategy/multicast/v=5/retx-suppression-initial~20/retx-suppression-multiplier~1.5"
                .parse::<Name>()
                .unwrap()
                .as_ref(),
        )
        .unwrap();
        let AnyStrategy::Multicast(multicast) = strategy else {
            panic!("another strategy: {strategy:?}");
        };
        assert_eq!(multicast.suppression.initial, Duration::from_millis(20));
        assert_eq!(multicast.suppression.multiplier_milli, 1500);
        use StrategyNameError::{Parameter, Unknown};
        for (uri, error) in [
            ("/a", Unknown),
            ("/localhost/nfd/strategy", Unknown),
            ("/localhost/nfd/strategy/best", Unknown),
            ("/localhost/nfd/strategy/best-route/v=4", Unknown),
            ("/localhost/nfd/strategy/random/v=1/x~1", Parameter),
            (
                "/localhost/nfd/strategy/best-route/v=5/retx-suppression-initial",
                Parameter,
            ),
            (
                "/localhost/nfd/strategy/best-route/v=5/retx-suppression-initial~x",
                Parameter,
            ),
            (
                "/localhost/nfd/strategy/best-route/v=5/retx-suppression-multiplier~0.5",
                Parameter,
            ),
            (
                "/localhost/nfd/strategy/best-route/v=5/retx-suppression-max~5",
                Parameter,
            ),
            (
                "/localhost/nfd/strategy/asf/v=5/probing-interval~10",
                Parameter,
            ),
            (
                "/localhost/nfd/strategy/asf/v=5/measurements-lifetime~60000",
                Parameter,
            ),
        ] {
            assert_eq!(canonical(uri), Err(error), "{uri}");
        }
    }
}
