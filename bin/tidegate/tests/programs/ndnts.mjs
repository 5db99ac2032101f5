// A client of NDNts: `node ndnts.mjs FORWARDER VERB ...`, where FORWARDER is unix:///, tcp4:// or ws://.
//   serve NAME BYTES   serves a segmented object until it is ended
//   fetch NAME         fetches one; prints its length and SHA-256
//   manage             uses management; prints what it found
import { createHash } from "node:crypto";
import { consume } from "@ndn/endpoint";
import {
  ControlParameters, CsInfo, FaceQuery, FaceStatus, GeneralStatus, RibEntry, StrategyChoice, enableNfdPrefixReg, invoke,
  invokeCsErase, list,
} from "@ndn/nfdmgmt";
import { TcpTransport, UnixTransport } from "@ndn/node-transport";
import { Interest, Name } from "@ndn/packet";
import { BufferChunkSource, fetch, serve } from "@ndn/segmented-object";
import { WsTransport } from "@ndn/ws-transport";

async function connect(uri) {
  const url = new URL(uri);
  switch (url.protocol) {
    case "unix:":
      return UnixTransport.createFace({}, url.pathname);
    case "tcp4:": {
      const [host, port] = url.host.split(":");
      return TcpTransport.createFace({}, host, Number(port));
    }
    default:
      return WsTransport.createFace({}, uri);
  }
}

// The same bytes each time, and none of them like the next.
function content(length) {
  const out = Buffer.alloc(length);
  for (let at = 0; at < length; at += 32) {
    createHash("sha256").update(String(at)).digest().copy(out, at);
  }
  return out;
}

const describe = (bytes) => `${bytes.length} ${createHash("sha256").update(bytes).digest("hex")}`;

async function succeed(command, parameters) {
  const response = await invoke(command, parameters);
  if (response.statusCode !== 200) {
    throw new Error(`${command}: ${response.statusCode} ${response.statusText}`);
  }
  return response;
}

async function manage() {
  const events = consume(new Interest("/localhost/nfd/faces/events", Interest.CanBePrefix, Interest.Lifetime(60_000)));
  const before = await list(GeneralStatus);
  const made = ControlParameters.decodeFromResponseBody(
    await succeed("faces/create", { uri: "udp4://127.0.0.1:19", mtu: 1300 }));
  const event = await events;
  const [face] = await list(FaceQuery({ faceId: made.faceId }));
  const prefix = new Name("/ndnts/managed");
  await succeed("rib/register", { name: prefix, faceId: made.faceId, cost: 7 });
  const routes = await list(RibEntry);
  const multicast = new Name("/localhost/nfd/strategy/multicast");
  await succeed("strategy-choice/set", { name: prefix, strategy: multicast });
  const chosen = (await list(StrategyChoice)).find((choice) => choice.name.equals(prefix));
  const erased = await invokeCsErase(new Name("/ndnts/object"));
  const info = await list(CsInfo);
  await succeed("strategy-choice/unset", { name: prefix });
  await succeed("faces/destroy", { faceId: made.faceId });
  const refused = await invoke("faces/create", { uri: "udp://not-canonical" });
  console.log(JSON.stringify({
    version: before[0].nfdVersion,
    event: event.name.toString(),
    face: { uri: face.uri, mtu: face.mtu },
    cost: routes.find((entry) => entry.name.equals(prefix))?.route[0].cost,
    strategy: chosen.strategy.toString(),
    erased,
    capacity: Number(info[0].capacity),
    refused: refused.statusCode,
  }));
}

const [uri, verb, name, length] = process.argv.slice(2);
const face = await connect(uri);
switch (verb) {
  case "serve": {
    enableNfdPrefixReg(face);
    const bytes = content(Number(length));
    serve(new Name(name), new BufferChunkSource(bytes, { chunkSize: 7000 }), { freshnessPeriod: 600_000 });
    console.log(describe(bytes));
    break;
  }
  case "fetch":
    console.log(describe(await fetch(new Name(name), { retxLimit: 10 })));
    face.close();
    break;
  default:
    await manage();
    face.close();
}
