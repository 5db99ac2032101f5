//! From nodes and named edges to a checked, ordered [`Graph`].

use std::collections::HashSet;
use std::sync::Arc;

use io::PortId;

use crate::counters::{EdgeCounters, NodeCounters};
use crate::dispatch::{Graph, Stage};
use crate::node::Node;
use crate::outlets::Outlets;

/// The most nodes that a graph has.
pub const NODES_MAX: usize = 128;

/// A node in a [`GraphBuilder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodeId(usize);

/// Why nodes and edges do not make a graph.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// The node has no edge of that name.
    #[error("node {node} has no edge {edge} (it has: {edges})")]
    NoSuchEdge {
        /// The node.
        node: String,
        /// The edge asked for.
        edge: String,
        /// The edges that it has.
        edges: String,
    },
    /// An edge was connected twice.
    #[error("edge {edge} of node {node} is connected twice")]
    ConnectedTwice {
        /// The node.
        node: String,
        /// The edge.
        edge: String,
    },
    /// An edge leads nowhere.
    #[error("edge {edge} of node {node} is not connected")]
    Unconnected {
        /// The node.
        node: String,
        /// The edge.
        edge: String,
    },
    /// A port has no input node.
    #[error("port {port} has no input node")]
    NoInput {
        /// The port.
        port: PortId,
    },
    /// A port has two input nodes.
    #[error("port {port} has two input nodes")]
    TwoInputs {
        /// The port.
        port: PortId,
    },
    /// Two nodes have one name.
    #[error("two nodes are called {name}")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The sending stage has no edges, and is no port's input.
    #[error("the tx stage cannot be the input node of port {port}")]
    TxAsInput {
        /// The port.
        port: PortId,
    },
    /// Too many nodes.
    #[error("{nodes} nodes; a graph has at most {NODES_MAX}")]
    TooManyNodes {
        /// Nodes, the tx stage among them.
        nodes: usize,
    },
}

/// Collects nodes and edges. The sending stage `tx` is there from the start.
///
/// ```
/// use graph::{Context, EdgeId, GraphBuilder, Node, Outlets};
/// use io::{Batch, PortId};
///
/// /// Sends what it gets out of the other of two ports.
/// #[derive(Debug)]
/// struct Patch;
/// impl Node for Patch {
///     fn name(&self) -> &str {
///         "patch"
///     }
///     fn edges(&self) -> &[&'static str] {
///         &["tx"]
///     }
///     fn process(&mut self, _cx: &mut Context<'_>, batch: &mut Batch, out: &mut Outlets) {
///         for frame in batch.iter_mut() {
///             frame.tx_port = PortId(1 - frame.rx_port.0);
///         }
///         out.push_all(EdgeId(0), batch);
///     }
/// }
///
/// let mut builder = GraphBuilder::new();
/// let patch = builder.add(Box::new(Patch));
/// builder.connect(patch, "tx", builder.tx())?;
/// builder.input(PortId(0), patch)?;
/// builder.input(PortId(1), patch)?;
/// let graph = builder.build(2)?;
/// assert_eq!(graph.counters()[0].name, "patch");
/// # Ok::<(), graph::GraphError>(())
/// ```
#[derive(Debug)]
pub struct GraphBuilder {
    /// `None` is the tx stage.
    nodes: Vec<Option<Box<dyn Node>>>,
    edges: Vec<Vec<Option<NodeId>>>,
    inputs: Vec<Option<NodeId>>,
}

impl Default for GraphBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl GraphBuilder {
    /// Makes a builder with only the tx stage.
    pub fn new() -> Self {
        Self {
            nodes: vec![None],
            edges: vec![Vec::new()],
            inputs: Vec::new(),
        }
    }

    /// Returns the sending stage, which sends each frame by the port in its `tx_port`.
    pub fn tx(&self) -> NodeId {
        NodeId(0)
    }

    /// Adds a node.
    pub fn add(&mut self, node: Box<dyn Node>) -> NodeId {
        self.edges.push(vec![None; node.edges().len()]);
        self.nodes.push(Some(node));
        NodeId(self.nodes.len() - 1)
    }

    /// Leads the edge called `edge` of `from` to `to`.
    ///
    /// # Errors
    /// If there is no such edge, or it leads somewhere already.
    pub fn connect(&mut self, from: NodeId, edge: &str, to: NodeId) -> Result<(), GraphError> {
        let names: &[&'static str] = self.nodes[from.0].as_ref().map_or(&[], |node| node.edges());
        let Some(index) = names.iter().position(|&name| name == edge) else {
            return Err(GraphError::NoSuchEdge {
                node: self.name(from.0).into(),
                edge: edge.into(),
                edges: names.join(", "),
            });
        };
        if self.edges[from.0][index].replace(to).is_some() {
            return Err(GraphError::ConnectedTwice {
                node: self.name(from.0).into(),
                edge: edge.into(),
            });
        }
        Ok(())
    }

    /// Makes `node` the one that gets what `port` receives.
    ///
    /// # Errors
    /// If the port has an input node already, or `node` is the tx stage.
    pub fn input(&mut self, port: PortId, node: NodeId) -> Result<(), GraphError> {
        if node == self.tx() {
            return Err(GraphError::TxAsInput { port });
        }
        if self.inputs.len() <= port.index() {
            self.inputs.resize(port.index() + 1, None);
        }
        match self.inputs[port.index()].replace(node) {
            Some(_) => Err(GraphError::TwoInputs { port }),
            None => Ok(()),
        }
    }

    /// Checks everything and makes the graph for a node of `ports` ports (ids 0 to `ports - 1`).
    ///
    /// # Errors
    /// An edge that leads nowhere, a port without input, two nodes of one name, too many nodes.
    pub fn build(self, ports: usize) -> Result<Graph, GraphError> {
        self.check(ports)?;
        let order = self.order();
        let mut rank = vec![0_u8; order.len()];
        for (position, &node) in order.iter().enumerate() {
            rank[node] = position as u8; // fewer than NODES_MAX
        }
        let mut targets = Vec::new();
        let mut bases = Vec::new();
        let mut counters = Vec::new();
        for &node in &order {
            bases.push(targets.len());
            let names: &[&'static str] = self.nodes[node].as_ref().map_or(&[], |n| n.edges());
            let mut edges = Vec::new();
            for (&name, to) in names.iter().zip(self.edges[node].iter().flatten()) {
                targets.push(rank[to.0]);
                edges.push(EdgeCounters {
                    name,
                    to: self.name(to.0).into(),
                    pkts: Default::default(),
                });
            }
            counters.push(NodeCounters::new(self.name(node), edges));
        }
        let inputs = (0..ports)
            .map(|port| self.inputs[port].map_or(0, |node| rank[node.0]))
            .collect();
        let outlets = Outlets::new(order.len(), targets);
        let mut nodes: Vec<_> = self.nodes.into_iter().map(Some).collect();
        let stages = order
            .iter()
            .filter_map(|&node| nodes[node].take())
            .map(|node| node.map_or(Stage::Tx, Stage::Node))
            .collect();
        Ok(Graph::new(
            stages,
            bases,
            inputs,
            outlets,
            Arc::from(counters),
            ports,
        ))
    }

    fn name(&self, node: usize) -> &str {
        self.nodes[node].as_ref().map_or("tx", |node| node.name())
    }

    fn check(&self, ports: usize) -> Result<(), GraphError> {
        if self.nodes.len() > NODES_MAX {
            return Err(GraphError::TooManyNodes {
                nodes: self.nodes.len(),
            });
        }
        let mut names = HashSet::new();
        for node in 0..self.nodes.len() {
            if !names.insert(self.name(node)) {
                return Err(GraphError::DuplicateName {
                    name: self.name(node).into(),
                });
            }
            if let Some(index) = self.edges[node].iter().position(Option::is_none) {
                let names: &[&'static str] = self.nodes[node].as_ref().map_or(&[], |n| n.edges());
                return Err(GraphError::Unconnected {
                    node: self.name(node).into(),
                    edge: names.get(index).copied().unwrap_or_default().into(),
                });
            }
        }
        let missing = (0..ports).find(|&port| self.inputs.get(port).copied().flatten().is_none());
        match missing {
            // A port id is a u16 wherever it comes from.
            Some(port) => Err(GraphError::NoInput {
                port: PortId(port as u16),
            }),
            None => Ok(()),
        }
    }

    /// Orders the nodes so that every edge leads forward, apart from those that close a cycle: a
    /// depth-first search, finished last goes first. The tx stage, which has no edges, comes last.
    fn order(&self) -> Vec<usize> {
        let mut seen = vec![false; self.nodes.len()];
        let mut finished = Vec::with_capacity(self.nodes.len());
        // The tx stage finishes first of all, and so comes last.
        for root in 0..self.nodes.len() {
            if seen[root] {
                continue;
            }
            seen[root] = true;
            let mut path = vec![(root, 0)];
            while let Some((node, next)) = path.last_mut() {
                match self.edges[*node].get(*next) {
                    Some(target) => {
                        *next += 1;
                        if let Some(NodeId(to)) = *target
                            && !core::mem::replace(&mut seen[to], true)
                        {
                            path.push((to, 0));
                        }
                    }
                    None => {
                        finished.push(*node);
                        path.pop();
                    }
                }
            }
        }
        finished.reverse();
        finished
    }
}
