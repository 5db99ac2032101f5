//! The node's configuration: one TOML file.
//!
//! [`load`] reads a file and checks all of it; what is wrong comes back as a [`ConfigError`] that
//! shows the place, the cause and one remedy a problem.

mod error;
mod explain;
pub mod keys;
mod locate;
mod schema;
mod validate;

use std::path::Path;

pub use error::{ConfigError, Problem};
pub use schema::{
    BridgeConfig, Config, DriverConfig, HugePagesConfig, IdleConfig, IdleMode, NeighbourConfig,
    NodeConfig, PortConfig, RouteConfig,
};

/// Reads and checks a configuration file.
///
/// # Errors
/// The file cannot be read, is not TOML, has keys or values that the schema does not know, or
/// contradicts itself.
pub fn load(path: &Path) -> Result<Config, ConfigError> {
    parse(&path.display().to_string(), &read(path)?)
}

/// Reads a configuration file's text.
///
/// # Errors
/// The file cannot be read, or is not UTF-8.
pub fn read(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
        file: path.display().to_string(),
        source,
    })
}

/// Checks a configuration; `file` is its name in messages.
///
/// # Errors
/// As [`load`], but for reading.
pub fn parse(file: &str, text: &str) -> Result<Config, ConfigError> {
    let invalid = |problems| ConfigError::Invalid {
        file: file.to_owned(),
        text: text.to_owned(),
        problems,
    };
    let config: Config =
        toml::from_str(text).map_err(|error| invalid(vec![explain::explain(text, &error)]))?;
    let places = locate::Places::new(text);
    let problems = validate::validate(&config, text, &places);
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(invalid(problems))
    }
}

/// Shows problems that somebody else found in a configuration that [`parse`] accepted, each given as
/// place (`route[2].via`), cause and remedy.
pub fn problems_at<'a>(
    file: &str,
    text: &str,
    found: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>,
) -> ConfigError {
    let places = locate::Places::new(text);
    let problem = |(place, message, remedy): (&str, &str, &str)| {
        let path = place.replace('[', ".").replace(']', "");
        let key = path.rsplit('.').find(|part| part.parse::<usize>().is_err());
        let label = key.map_or_else(String::new, |key| format!("see `{key}`"));
        Problem::new(text, places.of(&path), message, label, remedy)
    };
    ConfigError::Invalid {
        file: file.to_owned(),
        text: text.to_owned(),
        problems: found.into_iter().map(problem).collect(),
    }
}

impl Config {
    /// Writes the configuration as TOML that [`parse`] reads back to an equal one.
    ///
    /// # Panics
    /// Never: every value of the schema has a TOML form.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("every value of the schema has a TOML form")
    }
}
