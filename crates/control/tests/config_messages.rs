//! Golden messages: each shows file, line, caret, cause and one remedy.

use control::config::{ConfigError, load, parse};

fn message(text: &str) -> String {
    parse("node.toml", text)
        .expect_err("this configuration is wrong")
        .render(false, 100)
}

macro_rules! golden {
    ($($name:ident: $text:literal;)+) => {$(
        #[test]
        fn $name() {
            let message = message($text);
            assert!(message.contains("node.toml:"), "no place: {message}");
            assert!(message.contains("help:"), "no remedy: {message}");
            insta::assert_snapshot!(stringify!($name), message);
        }
    )+};
}

golden! {
    unknown_table: "[[prot]]\nname = \"wan\"\n";
    unknown_key_misspelt: "[node]\nname = \"edge\"\nframe_byte = 2048\n";
    unknown_key_of_another_table: "[node]\nlatency_budget_us = 50\n[[port]]\nname = \"wan\"\n";
    unknown_key_far_from_any: "[[port]]\nname = \"wan\"\ncolour = \"blue\"\n";
    wrong_type_text_for_number: "[node]\nframes_per_worker = \"many\"\n";
    wrong_type_number_for_text: "[[port]]\nname = 7\n";
    wrong_type_element: "[node]\ncpus = [0, \"one\"]\n";
    number_out_of_type: "[node]\ncpus = [0, 99999]\n";
    negative_number: "[idle]\nlatency_budget_us = -5\n";
    table_given_once: "[port]\nname = \"wan\"\n";
    unknown_driver: "[[port]]\nname = \"wan\"\ndriver = \"afxdp\"\n";
    unknown_idle_mode: "[idle]\nmode = \"turbo\"\n";
    missing_name: "[[port]]\ndriver = \"auto\"\n";
    bad_address: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\", \"10.0.0.300/24\"]\n";
    address_without_length: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1\"]\n";
    prefix_length_too_long: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/33\"]\n";
    bad_mac: "[[port]]\nname = \"wan\"\nmac = \"02:00:00:00:00\"\n";
    host_bits_in_route: "[[port]]\nname = \"wan\"\n[[route]]\nto = \"10.1.2.3/8\"\nport = \"wan\"\n";
    bad_next_hop: "[[port]]\nname = \"wan\"\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"gateway\"\n";
    syntax_unquoted: "[[port]]\nname = wan\n";
    syntax_no_value: "[[port]]\nname\n";
    syntax_unclosed: "[node\nname = \"x\"\n";
    duplicate_key: "[node]\nname = \"a\"\nname = \"b\"\n";
    duplicate_port: "[[port]]\nname = \"wan\"\n\n[[port]]\nname = \"wan\"\n";
    port_and_bridge_of_one_name: "[[port]]\nname = \"lan\"\n\n[[bridge]]\nname = \"lan\"\nports = [\"lan\"]\n";
    interface_of_two_ports: "[[port]]\nname = \"a\"\ninterface = \"eth0\"\n[[port]]\nname = \"b\"\ninterface = \"eth0\"\n";
    interface_name_too_long: "[[port]]\nname = \"a-port-with-a-very-long-name\"\n";
    no_port: "[node]\nname = \"edge\"\n";
    duplicate_cpu: "[node]\ncpus = [1, 1]\n[[port]]\nname = \"wan\"\n";
    frame_size: "[node]\nframe_bytes = 3000\n[[port]]\nname = \"wan\"\n";
    mtu_larger_than_frame: "[[port]]\nname = \"wan\"\nmtu = 9000\n";
    mtu_too_small_for_ipv6: "[[port]]\nname = \"wan\"\nmtu = 576\naddresses = [\"2001:db8::1/64\"]\n";
    group_mac: "[[port]]\nname = \"wan\"\nmac = \"01:00:5e:00:00:01\"\n";
    network_address: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.0/24\"]\n";
    broadcast_address: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.255/24\"]\n";
    address_twice: "[[port]]\nname = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[[port]]\nname = \"b\"\naddresses = [\"192.0.2.1/24\"]\n";
    overlapping_links: "[[port]]\nname = \"a\"\naddresses = [\"10.0.0.1/8\"]\n[[port]]\nname = \"b\"\naddresses = [\"10.9.0.1/16\"]\n";
    bridge_of_unknown_port: "[[port]]\nname = \"lan0\"\n[[port]]\nname = \"lan1\"\n[[bridge]]\nname = \"lan\"\nports = [\"lan0\", \"lna1\"]\n";
    bridge_port_with_addresses: "[[port]]\nname = \"lan0\"\naddresses = [\"192.0.2.1/24\"]\n[[bridge]]\nname = \"lan\"\nports = [\"lan0\"]\n";
    port_of_two_bridges: "[[port]]\nname = \"p\"\n[[bridge]]\nname = \"a\"\nports = [\"p\"]\n[[bridge]]\nname = \"b\"\nports = [\"p\"]\n";
    route_leads_nowhere: "[[port]]\nname = \"wan\"\n[[route]]\nto = \"0.0.0.0/0\"\n";
    route_by_unknown_port: "[[port]]\nname = \"wan\"\n[[route]]\nto = \"0.0.0.0/0\"\nport = \"wna\"\n";
    next_hop_unreachable: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"198.51.100.1\"\n";
    next_hop_is_the_node: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[[route]]\nto = \"0.0.0.0/0\"\nvia = \"192.0.2.1\"\n";
    next_hop_of_the_other_version: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[[route]]\nto = \"::/0\"\nvia = \"192.0.2.9\"\n";
    blackhole_that_forwards: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[[route]]\nto = \"10.0.0.0/8\"\nvia = \"192.0.2.9\"\nblackhole = true\n";
    route_twice: "[[port]]\nname = \"wan\"\n[[route]]\nto = \"10.0.0.0/8\"\nport = \"wan\"\n[[route]]\nto = \"10.0.0.0/8\"\nport = \"wan\"\n";
    link_of_one_port: "[[port]]\nname = \"a\"\n[[link]]\nname = \"bad\"\nports = [\"a\"]\n";
    link_of_unknown_port: "[[port]]\nname = \"east\"\n[[port]]\nname = \"west\"\n[[link]]\nname = \"bad\"\nports = [\"east\", \"wset\"]\n";
    link_unknown_key: "[[port]]\nname = \"a\"\n[[port]]\nname = \"b\"\n[[link]]\nname = \"bad\"\nports = [\"a\", \"b\"]\nloss_ppm = 5\n";
    link_delay_misspelt: "[[port]]\nname = \"a\"\n[[port]]\nname = \"b\"\n[[link]]\nname = \"bad\"\nports = [\"a\", \"b\"]\ndelay = 5\n";
    port_of_two_links: "[[port]]\nname = \"a\"\n[[port]]\nname = \"b\"\n[[port]]\nname = \"c\"\n[[link]]\nname = \"x\"\nports = [\"a\", \"b\"]\n[[link]]\nname = \"y\"\nports = [\"b\", \"c\"]\n";
    port_of_link_and_bridge: "[[port]]\nname = \"a\"\n[[port]]\nname = \"b\"\n[[bridge]]\nname = \"lan\"\nports = [\"a\"]\n[[link]]\nname = \"bad\"\nports = [\"a\", \"b\"]\n";
    link_port_with_addresses: "[[port]]\nname = \"a\"\naddresses = [\"192.0.2.1/24\"]\n[[port]]\nname = \"b\"\n[[link]]\nname = \"bad\"\nports = [\"a\", \"b\"]\n";
    link_values: "[[port]]\nname = \"a\"\n[[port]]\nname = \"b\"\n[[link]]\nname = \"bad\"\nports = [\"a\", \"b\"]\ndrop_ppm = 2000000\nreorder_ppm = 1\nrate_bps = 0\nmtu = 9\nqueue_pkts = 5000\n";
    route_by_link_port: "[[port]]\nname = \"a\"\n[[port]]\nname = \"b\"\n[[link]]\nname = \"bad\"\nports = [\"a\", \"b\"]\n[[route]]\nto = \"0.0.0.0/0\"\nport = \"a\"\n";
    route_by_bridged_port: "[[port]]\nname = \"a\"\n[[bridge]]\nname = \"lan\"\nports = [\"a\"]\n[[route]]\nto = \"0.0.0.0/0\"\nport = \"a\"\n";
    route_to_a_link: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[[route]]\nto = \"192.0.2.0/24\"\nport = \"wan\"\n";
    route_to_multicast: "[[port]]\nname = \"wan\"\n[[route]]\nto = \"224.0.0.0/4\"\nport = \"wan\"\n";
    routes_that_discard_and_forward: "[[port]]\nname = \"wan\"\n[[route]]\nto = \"10.0.0.0/8\"\nport = \"wan\"\n[[route]]\nto = \"10.0.0.0/8\"\nblackhole = true\n";
    reserved_address: "[[port]]\nname = \"wan\"\naddresses = [\"240.0.0.1/24\"]\n";
    neighbour_elsewhere: "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\"]\n[[neighbour]]\naddress = \"198.51.100.9\"\nmac = \"02:00:00:00:00:09\"\nport = \"wan\"\n";
    neighbour_on_unknown_port: "[[port]]\nname = \"wan\"\n[[neighbour]]\naddress = \"192.0.2.9\"\nmac = \"02:00:00:00:00:09\"\nport = \"lan\"\n";
    pcap_without_file: "[[port]]\nname = \"trace\"\ndriver = \"pcap\"\n";
    relative_control_socket: "[node]\ncontrol_socket = \"tidegate.sock\"\n[[port]]\nname = \"wan\"\n";
    group_without_a_dpdk_port: "[dpdk]\ngroup = \"edge 1\"\nguests = 99\n[[port]]\nname = \"wan\"\n";
    guest_with_guests: "[node]\ncpus = [0, 1]\nhuge_pages = \"never\"\n[dpdk]\ngroup = \"edge\"\nguests = 1\nguest = 0\n[[port]]\nname = \"wan\"\ndriver = \"dpdk\"\ndevice = \"net_null0\"\n";
    blocks_of_ports_shared: "[dpdk]\ngroup = \"edge\"\n[[port]]\nname = \"lan\"\ndriver = \"dpdk\"\ndevice = \"net_null0\"\n[firewall]\ninside = \"lan\"\nstate = \"dpdk\"\n[firewall.cgn]\n";
    connections_shared_with_nobody: "[[port]]\nname = \"lan\"\n[firewall]\ninside = \"lan\"\nstate = \"dpdk\"\n";
    several_problems: "[node]\ncpus = [1, 1]\nframes_per_worker = 1\n[[port]]\nname = \"wan\"\naddresses = [\"0.0.0.0/0\"]\n";
}

#[test]
fn missing_file() {
    let directory = tempfile::tempdir().unwrap();
    let error = load(&directory.path().join("absent.toml")).unwrap_err();
    assert!(matches!(error, ConfigError::Read { .. }));
    let message = error
        .render(false, 400)
        .replace(&directory.path().display().to_string(), "DIR");
    insta::assert_snapshot!(message);
}

#[test]
fn file_that_is_not_text() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [0xff, 0xfe, 0x00]).unwrap();
    let message = load(file.path())
        .unwrap_err()
        .render(false, 400)
        .replace(&file.path().display().to_string(), "FILE");
    insta::assert_snapshot!(message);
}

#[test]
fn a_configuration_without_a_file_is_checked_too() {
    let text = "[[port]]\nname = \"wan\"\naddresses = [\"192.0.2.1/24\", \"192.0.2.1/24\"]\n";
    let found = control::config::check(&toml::from_str(text).unwrap());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].path, "port[0].addresses[1]");
    assert!(found[0].to_string().contains("given twice"), "{}", found[0]);
}
