// Checks on a block's page, in the browser, that a quorum signed this block: the server that made the page might lie.
// The votes are verified with WebCrypto over the very bytes that the members signed. Without this script the page is
// as it is without the line.
"use strict";

(() => {
  const PRECOMMIT = 2;
  const GENESIS = { version: 0, members: 3, faultModel: 13, committee: 18 }; // places in the document
  const HEADER = { version: 0, parent: 1, height: 2, posts: 5, votes: 6, evidence: 7, state: 8, knowledge: 9, changes: 12, members: 13 };
  const CHANGES_VERSION = 3; // from which on members may change
  const NEWEST_VERSION = 3; // to which an amendment may have led
  const CONVICTED = 14; // place in a state
  const CRIMES_MAX = 8; // that a block proves: they say who decides the next one, and nothing about this one
  const PIVOTS_MAX = 64; // blocks that wait for one below them
  const CRIMES = { // kind of evidence: places of its statements' key, slot and contents, and how a statement is signed
    1: { key: 6, slot: [0, 1, 2], said: [3], name: "vote" },
    2: { key: 2, slot: [0, 1], said: [3, 4], name: "transaction" },
  };
  const answers = new Map(); // light blocks on the way to a block whose members have changed, by address
  const found = new Map(); // verdicts, by the block and the hashes on its page: a page that changes asks once
  const told = new WeakMap(); // the verdict that a line tells: written again, readers of the screen would tell it again

  const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  const text = (words) => new TextEncoder().encode(words);
  const join = (...parts) => new Uint8Array(parts.flatMap((part) => [...part]));
  const sha256 = async (bytes) => hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));

  const WIDE = { // bytes of the number behind a type byte, and the smallest that no shorter form holds
    0xcc: [1, 2 ** 7], 0xcd: [2, 2 ** 8], 0xce: [4, 2 ** 16], 0xcf: [8, 2 ** 32],
    0xc4: [1, 0], 0xc5: [2, 2 ** 8], 0xc6: [4, 2 ** 16],
    0xd9: [1, 2 ** 5], 0xda: [2, 2 ** 8], 0xdb: [4, 2 ** 16], 0xdc: [2, 2 ** 4], 0xdd: [4, 2 ** 16],
  };

  class Refused extends Error {}
  const expect = (condition, words) => { if (!condition) throw new Refused(words); };

  // One value of the canonical encoding: integers, bytes, texts and lists. A node knows where its bytes are.
  const read = (bytes, start = 0, depth = 0) => {
    const head = bytes[start];
    const wide = (from, size) => bytes.slice(from, from + size).reduce((sum, byte) => sum * 256 + byte, 0);
    const node = (end, kind, value, items = []) => {
      expect(end <= bytes.length, "the answer ends within a value");
      return { kind, value, items, raw: bytes.slice(start, end), end };
    };
    const list = (from, count) => {
      expect(depth < 8, "the answer has too many lists");
      const items = [];
      for (let at = from; items.length < count; at = items.at(-1).end) items.push(read(bytes, at, depth + 1));
      return node(items.at(-1)?.end ?? from, "list", items.length, items);
    };
    const string = (from, size, kind) => node(from + size, kind, bytes.slice(from, from + size));
    if (head < 0x80) return node(start + 1, "integer", head);
    if (head < 0xa0 && head >= 0x90) return list(start + 1, head - 0x90);
    if (head < 0xc0 && head >= 0xa0) return string(start + 1, head - 0xa0, "text");
    const [size, least] = WIDE[head] ?? [];
    expect(size !== undefined, "the answer is not encoded as a block is");
    const [number, from] = [wide(start + 1, size), start + 1 + size];
    expect(number >= least, "a number in the answer is not in its shortest form");
    if (head >= 0xcc && head <= 0xcf) return node(from, "integer", number);
    return head >= 0xdc ? list(from, number) : string(from, number, head >= 0xd9 ? "text" : "bytes");
  };

  const whole = (bytes) => {
    const node = read(bytes);
    expect(node.end === bytes.length, "the answer is longer than its value");
    return node;
  };

  // What a light block is made of. Nodes take nothing else, whoever signed it.
  const integer = (most = Infinity) => ({ kind, value }) => kind === "integer" && value <= most;
  const octets = (size) => ({ kind, value }) => kind === "bytes" && value.length === size;
  const marks = ({ kind, value }) => kind === "bytes" && value.length <= 1024 && value.at(-1) !== 0;
  const listed = (...parts) => ({ kind, items }) => (
    kind === "list" && items.length === parts.length && parts.every((is, place) => is(items[place]))
  );
  const several = (is, most = Infinity) => ({ kind, items }) => (
    kind === "list" && items.length <= most && items.every(is)
  );
  const [crime, state] = [({ kind }) => kind === "list", ({ kind }) => kind === "bytes"]; // read where they are used
  const either = (...forms) => (node) => forms.some((is) => is(node));

  const lightForm = (changes) => {
    const [number, hash, clock, signature] = [integer(), octets(32), integer(2 ** 48), octets(64)];
    const turnout = listed(clock, clock, marks, marks);
    const seen = changes ? [listed(hash, clock, clock, turnout, signature)] : [];
    const vote = either(listed(hash, clock, clock, signature), ...seen);
    const [place, committed, roots] = [Array(3).fill(number), Array(5).fill(hash), changes ? [hash, hash] : []];
    const header = listed(number, hash, ...place, ...committed, number, hash, ...roots, number);
    const certificate = listed(number, number, number, hash, several(vote));
    const member = either(listed(number, hash), listed(number)); // the committee's size, too, which comes first
    const rest = changes ? [several(member), several(header, 1)] : [several(crime, CRIMES_MAX), several(state, 1)];
    return listed(hash, header, certificate, ...rest);
  };

  const ask = async (address) => {
    const answer = await fetch(address);
    if (!answer.ok) throw new Error(`${address} is not to be had`);
    return answer;
  };

  // The keys of those that decide a height, drawn as all members draw them.
  const electorsOf = async (members, committee, seed, names = members.map(unhex)) => {
    if (committee === 0) return members;
    const drawn = await Promise.all(names.map((name) => sha256(join(seed, name))));
    const order = members.map((key, index) => [drawn[index], key]).sort(([one], [other]) => (one < other ? -1 : 1));
    return order.slice(0, committee).map(([, key]) => key);
  };

  const faultyOf = (count, model) => (model === "byzantine" ? Math.floor(Math.max(0, count - 1) / 3) : 0);
  const quorumOf = (count, model) => Math.floor((count + faultyOf(count, model)) / 2) + 1;

  // Places and heights are 8 bytes in a draw, and stay far below 2³².
  const numberOf = (value) => join(new Uint8Array(4), [24, 16, 8, 0].map((bits) => (value >>> bits) & 0xff));

  const listOf = (items) => join([0x90 + items.length], ...items.map((item) => item.raw));

  const isSigned = async (key, signature, message) => {
    const imported = await crypto.subtle.importKey("raw", key, { name: "Ed25519" }, false, ["verify"]);
    return crypto.subtle.verify({ name: "Ed25519" }, imported, signature, message);
  };

  // A member that was convicted signed two statements that exclude each other, and nobody else can have done so.
  const culpritOf = async (chainId, evidence) => {
    const [kind, ...statements] = evidence.items;
    const { key, slot, said, name } = CRIMES[kind.value];
    const at = (items, places) => hex(listOf(places.map((place) => items[place])));
    const [one, other] = statements.map(({ items }) => [at(items, slot), at(items, said)]);
    const signed = await Promise.all(statements.map(({ items }) => {
      const message = join(text("fedchain/2/"), chainId, text(`${name}/`), listOf(items.slice(0, -1)));
      return isSigned(items[key].value, items.at(-1).value, message);
    }));
    const [culprit, same] = statements.map(({ items }) => hex(items[key].value));
    const isProven = culprit === same && one[0] === other[0] && one[1] !== other[1] && signed.every(Boolean);
    expect(isProven, "a conviction in the state below it is not proven");
    return culprit;
  };

  const isVoteValid = async (chainId, certificate, vote) => {
    const [voter, clock, mining, ...turnout] = vote.items; // what its voter saw of the posts, if it says so, and last
    const signature = turnout.pop();
    const [kind, height, attempt, block] = certificate.items;
    const signed = listOf([kind, height, attempt, block, clock, mining, voter, ...turnout]);
    const message = join(text("fedchain/2/"), chainId, text("vote/"), signed);
    try {
      return await isSigned(voter.value, signature.value, message);
    } catch {
      return false; // no key, or no signature
    }
  };

  // The rules of the founding document that votes are judged by.
  const rulesOf = (founding, chainId) => {
    const rules = founding.items;
    return {
      chainId,
      members: rules[GENESIS.members].items.map((item) => hex(item.value)),
      committee: rules[GENESIS.committee].value,
      model: new TextDecoder().decode(rules[GENESIS.faultModel].value),
      version: rules[GENESIS.version].value,
      changes: rules[GENESIS.version].value >= CHANGES_VERSION,
    };
  };

  // Members, those of them that were convicted, and electors of a block, as the state below it says.
  const namedByState = async (rules, light) => {
    const [, header, , , states] = light.items;
    const below = states.items[0].value;
    expect(await sha256(below) === hex(header.items[HEADER.state].value), "the state below it is another one");
    const crimes = whole(below).items[CONVICTED].items;
    const convicted = new Set(await Promise.all(crimes.map((crime) => culpritOf(unhex(rules.chainId), crime))));
    const active = rules.members.filter((key) => !convicted.has(key));
    const seed = join(header.items[HEADER.parent].value, text("committee"));
    const electors = await electorsOf(active, rules.committee, seed);
    return { members: rules.members, active, convicted, electors };
  };

  // The same where members change: the header below names the set. The trusted one does so for the next height.
  const namedByHeader = async (rules, light, trusted) => {
    const [, header, , set, headers] = light.items;
    const parent = header.items[HEADER.parent].value;
    const below = headers.items[0];
    let root = trusted?.hash === hex(parent) ? trusted.root : undefined;
    if (header.items[HEADER.height].value === 1) {
      const isFounder = ({ items: [place, key] }, index) => place.value === index && hex(key.value) === rules.members[index];
      const isWhole = set.items.length === rules.members.length && set.items.every(isFounder);
      expect(isWhole, "the members that came with it are not the founders");
      root = await sha256(set.raw);
    } else if (root === undefined) {
      expect(below && await sha256(below.raw) === hex(parent), "the header below it is another one");
      root = hex(below.items[HEADER.members].value);
    }
    expect(await sha256(set.raw) === root, "the members that came with it are not those that the header below names");
    const isAmended = set.items[0]?.items.length === 1; // the committee's size, before the members
    const committee = isAmended ? set.items[0].items[0].value : rules.committee;
    const pairs = set.items.slice(isAmended ? 1 : 0);
    const members = pairs.map((item) => hex(item.items[1].value));
    const places = pairs.map((item) => numberOf(item.items[0].value));
    const seed = join(unhex(rules.chainId), text("committee"), numberOf(header.items[HEADER.height].value));
    const electors = await electorsOf(members, committee, seed, places);
    return { members, active: members, convicted: new Set(), electors };
  };

  // The votes for a light block, judged by the electors that it proves.
  const judge = async (rules, light, trusted) => {
    expect(lightForm(rules.changes)(light), "its bytes have another form than a light block");
    const [named, header, certificate] = light.items;
    expect(hex(named.value) === rules.chainId, "its bytes are of another chain");
    const version = header.items[HEADER.version].value;
    const newest = rules.changes ? Math.max(rules.version, NEWEST_VERSION) : rules.version;
    expect(rules.version <= version && version <= newest, "its header is of another version");
    const hash = await sha256(header.raw);
    const height = header.items[HEADER.height].value;
    const [kind, ofHeight, , block, votes] = certificate.items;
    const isFor = kind.value === PRECOMMIT && hex(block.value) === hash && ofHeight.value === height;
    expect(isFor, "its votes are for another block");
    const proven = await (rules.changes ? namedByHeader(rules, light, trusted) : namedByState(rules, light));
    const required = quorumOf(proven.electors.length, rules.model);
    const allowed = new Set(proven.electors);
    const voters = votes.items.map((vote) => hex(vote.items[0].value));
    expect(voters.every((key, place) => place === 0 || voters[place - 1] <= key), "its votes are in another order");
    const own = new Map(votes.items.map((vote, place) => [voters[place], vote]));
    const judged = await Promise.all([...own].map(async ([key, vote]) => (
      allowed.has(key) && await isVoteValid(unhex(rules.chainId), certificate, vote) ? [key] : []
    )));
    const signers = judged.flat();
    const count = `${signers.length} of ${proven.electors.length} electors signed the vote for this block`;
    const spoilt = votes.items.length - signers.length;
    expect(signers.length >= required, `only ${count}, and ${required} are needed: nothing shows that it is final`);
    expect(spoilt === 0, `${spoilt} of ${votes.items.length} votes are not signed by an elector`);
    const root = rules.changes ? hex(header.items[HEADER.members].value) : undefined;
    return { ...proven, count, required, signers, height, hash, root, parent: hex(header.items[HEADER.parent].value) };
  };

  // Leads from the founders to a block whose members may be others, by as few blocks between as possible: a later one
  // is trusted if more members of the trusted set signed it than may lie, the next one in any case.
  // Each is judged once, though others may have to be trusted before it: which electors it proves, and who signed it,
  // follows from its own bytes, where the header below is that whose hash the block has, and not from who is trusted.
  const follow = async (rules, light, fetched) => {
    let trusted = { height: 0, hash: rules.chainId, members: rules.members };
    const waiting = [await judge(rules, light, trusted)];
    let between = -1;
    while (waiting.length > 0) {
      const next = waiting.at(-1);
      const isNext = next.height === trusted.height + 1;
      expect(!isNext || next.parent === trusted.hash, "a block on the way to it does not stand on the one below");
      const known = new Set(trusted.members);
      const isKnown = next.signers.filter((key) => known.has(key)).length > faultyOf(known.size, rules.model);
      if (isNext || isKnown) {
        trusted = next;
        waiting.pop();
        between += 1;
      } else {
        expect(waiting.length < PIVOTS_MAX, "too many blocks on the way to it wait for one below them");
        waiting.push(await judge(rules, await fetched(trusted.height, next.height), trusted));
      }
    }
    return { ...trusted, between };
  };

  const askLight = async (address) => {
    if (!answers.has(address)) answers.set(address, whole(unhex((await (await ask(address)).json()).bytes)));
    return answers.get(address);
  };

  // What the bytes prove of the block whose page this is; shown are the hashes on it.
  const check = async (line, shown) => {
    const founding = new Uint8Array(await (await ask(line.dataset.genesis)).arrayBuffer());
    const rules = rulesOf(whole(founding), await sha256(founding));
    const light = await askLight(line.dataset.light);
    const header = light.items[1];
    const { parent, knowledge, posts, votes, evidence, changes, members, state } = HEADER;
    const places = [parent, knowledge, posts, votes, evidence, ...(rules.changes ? [changes, members] : []), state];
    const hashes = [await sha256(header.raw), ...places.map((place) => hex(header.items[place].value))];
    expect(shown.join() === hashes.join(), "the hashes on this page are not those of the header that was signed");
    // The block in the middle between two heights; a server whose node joined may have others between them alone.
    const fetched = async (low, high) => {
      const middle = Math.floor((low + high) / 2);
      const block = await askLight(`${line.dataset.light.replace(/[0-9]+$/, middle)}?low=${low}&high=${high}`);
      const found = block.items[1].items[HEADER.height].value;
      expect(low < found && found < high, "a block on the way to it is of another height");
      return block;
    };
    const proven = await (rules.changes ? follow(rules, light, fetched) : judge(rules, light));
    const { electors, active, convicted, required, count, between } = proven;
    const liars = faultyOf(proven.members.length, rules.model);
    const lie = liars ? `that at most ${liars} of ${proven.members.length} members lie` : "that no member lies";
    const isDrawn = !rules.changes && electors.length < active.length && required <= liars - convicted.size;
    const drawn = isDrawn ? ", and that the block below, which drew the electors, is real" : "";
    const earlier = rules.changes ? ", and as few in each earlier set, even of those that have left since" : "";
    const way = between ? ` ${between} block${between > 1 ? "s" : ""} between the founders and these electors were checked, too.` : "";
    const who = rules.changes ? "these are the founders" : "these are the members";
    return [
      `${count}, ${required} were needed; the header has this hash, and the hashes above are in it.${way}`,
      `that ${who}: their keys came from this server. Compare the chain id ${rules.chainId} with one from `
        + `elsewhere. And ${lie}${drawn}${earlier}.`,
    ];
  };

  const hasEd25519 = async () => {
    try {
      await crypto.subtle.importKey("raw", new Uint8Array(32).fill(1), { name: "Ed25519" }, false, ["verify"]);
      return true;
    } catch (error) {
      return error.name !== "NotSupportedError";
    }
  };

  const verdictOf = async (line, shown) => {
    if (!globalThis.isSecureContext || !globalThis.crypto?.subtle) {
      return ["", "not checked here", "Browsers verify signatures only on pages from https or from localhost."];
    }
    if (!await hasEd25519()) return ["", "not checked here", "This browser's WebCrypto has no Ed25519."];
    try {
      const [checked, believed] = await check(line, shown);
      return ["good", "checked in this browser", checked, believed];
    } catch (error) {
      if (error instanceof Refused) return ["false", "FALSE", `This browser checked the votes: ${error.message}.`];
      throw error;
    }
  };

  const show = (line, verdict) => {
    if (told.get(line) === verdict && !line.hidden) return;
    told.set(line, verdict);
    const [kind, label, words, believed] = verdict;
    const tag = { good: "ok", false: "bad" }[kind] ?? "warn";
    line.className = `card verdict ${kind}`.trim();
    line.replaceChildren();
    const badge = line.appendChild(document.createElement("span"));
    badge.className = `tag ${tag}`;
    badge.textContent = label;
    line.append(` ${words}`);
    if (believed) {
      line.append(" ");
      line.appendChild(document.createElement("b")).textContent = "Believed:";
      line.append(` ${believed}`);
    }
    line.hidden = false;
  };

  const look = async () => {
    const line = document.getElementById("checked");
    if (!line) return;
    const shown = [...document.querySelectorAll("#block dl.lines code.hash")].map((item) => item.textContent);
    const key = [line.dataset.light, ...shown].join();
    if (!found.has(key)) {
      line.hidden = true; // what it tells may be of other hashes
      found.set(key, verdictOf(line, shown).catch((error) => {
        found.delete(key); // the server may answer when the page has changed
        return ["", "not checked here", `The block's votes cannot be read: ${error.message}`];
      }));
    }
    const verdict = await found.get(key);
    const now = document.getElementById("checked"); // the page may have been replaced meanwhile
    if (now && now.dataset.light === line.dataset.light) show(now, verdict);
  };

  document.addEventListener("content", look);
  look();
})();
