// The report's browser of dialogues: finds, filters and shows episodes. What comes from a case or a model is only ever
// set as text. Without this script the page lacks the browser and the choice of theme, nothing else.
"use strict";
(() => {
  const SHOWN = 25;
  const KEPT = 12;
  const UNIT = { heartrate: "/min", resprate: "/min", o2sat: "%", sbp: "mmHg" };
  // A vital sign with its unit; a temperature below 50 is in °C, as in the case.
  const measure = (name, value) => typeof value !== "number" ? value : `${value} ${name === "temperature" ? (value < 50 ? "°C" : "°F") : UNIT[name] ?? ""}`.trim();
  const TEXT = { temperature: "Temperature", heartrate: "Heart rate", resprate: "Breathing rate", o2sat: "Oxygen saturation", sbp: "Systolic pressure" };
  const RECORD = ["chief_complaint", "onset_and_course", "pain", "associated_symptoms", "relevant_history", "medications", "allergies"];
  const OPEN = "unknown";
  const at = (id) => document.getElementById(id);
  const words = (name) => String(name).replaceAll("_", " ");
  document.documentElement.classList.add("scripted");

  // ---- Elements

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }

  function pairs(entries, attributes = {}) {
    return make("dl", attributes, entries.map(([name, value, mark]) => [make("dt", {}, name), make("dd", { class: mark }, String(value))]));
  }

  // ---- Packed data

  async function unpack(text) {
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length);
    for (let place = 0; place < letters.length; place += 1) bytes[place] = letters.charCodeAt(place);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).json();
  }

  const arrived = new Map();
  window.triagesimChunk = (number, text) => arrived.get(number)?.(text);

  function packed(number) {
    const held = at(`chunk-${number}`);
    if (held) return Promise.resolve(held.textContent);
    return new Promise((resolve, reject) => {
      const script = make("script", { src: `${at("beside").textContent}${number}.js` });
      arrived.set(number, (text) => { arrived.delete(number); script.remove(); resolve(text); });
      script.addEventListener("error", () => { script.remove(); reject(new Error(`${script.getAttribute("src")} isn't beside the page`)); });
      document.head.append(script);
    });
  }

  const recent = new Map();
  function chunk(number) {
    const found = recent.get(number) ?? packed(number).then(unpack);
    recent.delete(number);
    recent.set(number, found);
    if (recent.size > KEPT) recent.delete(recent.keys().next().value);
    found.catch(() => recent.delete(number));
    return found;
  }

  // ---- What is there, and what of it is wanted

  let names, rows, size;
  let texts = null;
  let kept = [];
  let first = 0;
  let chosen = -1;
  let asked = 0;

  function options(select, entries, any) {
    at(select).replaceChildren(new Option(any, ""), ...entries.map(([text, value]) => new Option(text, value)));
  }

  function fill() {
    const sorted = (kind) => names[kind].map((name, number) => [name, number]).sort((a, b) => a[0].localeCompare(b[0], "en"));
    const levels = (column) => [...new Set(rows.map((row) => row[column]))].sort((a, b) => (a ?? 9) - (b ?? 9)).map((level) => [level ?? "none", String(level)]);
    options("pairing", sorted("pairing"), "all");
    options("truth", levels(3), "all");
    options("final", levels(4), "all");
    options("outcome", sorted("outcome"), "all");
    options("mark", sorted("mark"), "any");
    options("trait", sorted("trait"), "any");
  }

  async function searchable(progress) {
    if (texts) return texts;
    const gathered = [];
    const chunks = Math.ceil(rows.length / size);
    for (let number = 0; number < chunks; number += 1) {
      if (!progress(number, chunks)) return null;
      for (const episode of await packed(number).then(unpack)) {
        const said = episode.timeline.flatMap((item) => [item.utterance, item.step?.explanation, ...(item.step?.red_flags ?? [])]);
        gathered.push([...said, ...(episode.red_flags ?? [])].filter(Boolean).join("\n").toLowerCase());
      }
    }
    texts = gathered;
    return texts;
  }

  async function search() {
    const mine = ++asked;
    const query = at("query").value.trim().toLowerCase();
    const wanted = Object.fromEntries(["pairing", "truth", "final", "outcome", "trait", "mark"].map((id) => [id, at(id).value]));
    let said = null;
    if (query && rows.length) {
      try {
        said = await searchable((done, all) => { at("found").textContent = `Reading ${done} of ${all} …`; return mine === asked; });
      } catch (error) {
        at("found").textContent = `The search covers ids and complaints only: ${error.message}.`;
      }
      if (mine !== asked) return;
    }
    const is = (row, column, value) => value === "" || String(row[column]) === value;
    kept = [];
    rows.forEach((row, number) => {
      const fits = is(row, 0, wanted.pairing) && is(row, 3, wanted.truth) && is(row, 4, wanted.final) && is(row, 5, wanted.outcome)
        && (wanted.mark === "" || row[7].includes(Number(wanted.mark))) && (wanted.trait === "" || row[8].includes(Number(wanted.trait)));
      if (fits && (!query || row[1].toLowerCase().includes(query) || row[2].toLowerCase().includes(query) || said?.[number].includes(query))) kept.push(number);
    });
    first = 0;
    list();
  }

  function list() {
    const shown = kept.slice(first, first + SHOWN);
    at("list").replaceChildren(...shown.map((number) => {
      const [pairing, id, complaint, truth, final, outcome, turns] = rows[number];
      const level = final === null ? "" : `level ${final}, truth ${truth ?? "unknown"}`;
      return make("li", {}, make("button", { type: "button", "data-row": number, "aria-current": number === chosen ? "true" : null, onclick: () => show(number) },
        complaint || "(no complaint)",
        make("small", {}, `${names.pairing[pairing]} · ${id}`),
        make("small", {}, [names.outcome[outcome], level, turns === null ? "" : `${turns} replies`].filter(Boolean).join(" · "))));
    }));
    at("found").textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} dialogues`;
    at("page").textContent = kept.length ? `${first + 1}–${first + shown.length}` : "none";
    at("earlier").disabled = first === 0;
    at("later").disabled = first + SHOWN >= kept.length;
  }

  function turn(by) {
    first = Math.max(0, first + by);
    list();
    at("list").querySelector("button")?.focus();
  }

  // ---- One dialogue

  async function show(number, focus = true) {
    chosen = number;
    for (const button of at("list").querySelectorAll("button")) {
      if (Number(button.dataset.row) === number) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    let episode;
    try {
      episode = (await chunk(Math.floor(number / size)))[number % size];
    } catch (error) {
      at("dialogue").replaceChildren(make("p", {}, `This dialogue can't be read: ${error.message}.`));
      return;
    }
    if (chosen !== number) return;
    at("dialogue").replaceChildren(...view(episode, number));
    history.replaceState(null, "", `#dialogue=${encodeURIComponent(`${episode.pairing}/${episode.episode_id}`)}`);
    if (focus) at("dialogue").focus();
  }

  function view(episode, number) {
    const spoken = episode.audio ? make("audio", { controls: true, preload: "none", src: episode.audio.file.split("/").map(encodeURIComponent).join("/"), "aria-label": "The spoken dialogue" }) : null;
    const moments = lines(episode, spoken, (moment) => { range.value = moment; move(); });
    const range = make("input", { type: "range", min: 0, max: Math.max(0, moments.length - 1), value: Math.max(0, moments.length - 1), "aria-label": "Moment of the dialogue", oninput: () => move() });
    const then = make("div", {});
    const move = () => {
      const now = Number(range.value);
      moments.forEach((moment, index) => { moment.element.classList.toggle("at", index === now); moment.element.classList.toggle("after", index > now); });
      range.setAttribute("aria-valuetext", moments[now] ? moments[now].label : "");
      then.replaceChildren(...state(episode, now));
    };
    if (spoken) {
      let last = -1;
      spoken.addEventListener("timeupdate", () => {
        const now = moments.findLastIndex((moment) => moment.start !== null && moment.start <= spoken.currentTime + 0.05);
        if (now >= 0 && now !== last) { last = now; range.value = now; move(); }
      });
    }
    const list = make("ol", { class: "lines", "aria-label": "Lines" }, moments.map((moment) => moment.element));
    const body = make("div", { class: "columns" }, make("div", {}, switches(list), list, ending(episode)), make("aside", { class: "side", "aria-label": "The case, and what was known" },
      make("h4", {}, "Moment"), range, then, background(episode)));
    move();
    return [head(episode, number), spoken, body].filter(Boolean);
  }

  function head(episode, number) {
    const truth = episode.case.acuity ?? null;
    const outcome = names.outcome[rows[number][5]];
    const levels = episode.timeline.filter((item) => item.step).map((item) => item.step.triage).filter((level, index, all) => level !== all[index - 1]);
    const place = kept.indexOf(number);
    const beside = (by) => { const other = kept[place + by]; if (other !== undefined) { first = Math.floor((place + by) / SHOWN) * SHOWN; chosen = other; list(); show(other); } };
    const labels = [...new Set(Object.values(episode.labels ?? {}))];
    return make("header", {},
      make("h3", {}, episode.case.chief_complaint || "(no complaint)"),
      make("p", { class: "note" }, `${episode.pairing} · ${episode.episode_id} · ${Object.entries(episode.models ?? {}).map(([role, model]) => `${role} ${model}`).join(", ")}`),
      labels.length ? make("p", { class: "note" }, labels.join("; ")) : null,
      make("p", {}, make("strong", { class: outcome === "right" ? "right" : "wrong" }, outcome), ` · ${(episode.algorithm ?? "").toUpperCase()} · the nurse's level ${levels.join(" → ") || "–"} · ground truth ${truth ?? "unknown"}${episode.case.acuity_scale ? ` (${episode.case.acuity_scale.toUpperCase()})` : ""}`),
      make("p", { class: "pager" }, make("button", { type: "button", disabled: place <= 0, onclick: () => beside(-1) }, "Previous dialogue"), " ", make("button", { type: "button", disabled: place < 0 || place >= kept.length - 1, onclick: () => beside(1) }, "Next dialogue")));
  }

  const hidden = new Set();
  function switches(list) {
    const apply = () => ["why", "passed", "master"].forEach((kind) => list.classList.toggle(`hide-${kind}`, hidden.has(kind)));
    apply();
    return make("div", { class: "switches", role: "group", "aria-label": "What is shown beside the lines" }, [["why", "Reasoning"], ["passed", "What passed"], ["master", "Rejected drafts"]].map(([kind, text]) =>
      make("label", {}, make("input", { type: "checkbox", checked: !hidden.has(kind), onchange: (event) => { if (event.target.checked) hidden.delete(kind); else hidden.add(kind); apply(); } }), " ", text)));
  }

  function lines(episode, spoken, go) {
    let heard = 0;
    return episode.timeline.map((item, index) => {
      const said = item.utterance !== undefined && item.in_transcript !== false;
      const start = said && episode.audio ? episode.audio.times[heard++]?.[0] ?? null : null;
      const play = spoken && start !== null ? make("button", { type: "button", "aria-label": `Play from ${start.toFixed(1)} seconds`, onclick: () => { spoken.currentTime = start; spoken.play(); go(index); } }, `▶ ${start.toFixed(1)} s`) : null;
      const element = make("li", { class: item.actor }, play, ...content(item), reasoning(item.step), passed(item.information), master(item.verification));
      return { element, start, label: item.utterance ? `${item.actor}: ${item.utterance}` : element.textContent };
    });
  }

  function content(item) {
    if (item.event === "vital") return [make("span", { class: "event" }, `${TEXT[item.name] ?? words(item.name)}: ${measure(item.name, item.value) ?? "could not be measured"}`)];
    if (item.event === "triage_end") return [make("span", { class: "event" }, `The triage ends: level ${item.triage ?? "none"}`)];
    if (item.actor === "step") return [make("span", { class: "event" }, `The nurse ${item.step.action === "log_red_flag" ? `logs ${item.step.red_flags.join(", ")}` : words(item.step.action ?? "acts")}`)];
    const level = item.triage ? make("span", { class: "level" }, `level ${item.triage}`) : null;
    return [make("span", { class: "who" }, item.actor === "nurse" ? "Nurse" : "Patient"), make("span", { class: "said" }, item.utterance ?? ""), level ? " " : null, level,
      item.in_transcript === false ? make("div", { class: "event" }, "Kept out of the dialogue: it names the level.") : null,
      item.infers ? make("div", { class: "event" }, `Asks for what ${TEXT[item.infers] ?? item.infers} would have told.`) : null];
  }

  function reasoning(step) {
    if (!step) return null;
    return make("div", { class: "why" }, step.understood ? make("div", {}, `Understood: ${step.understood}`) : null,
      `${step.explanation ?? ""} (level ${step.triage}${step.confidence ? `, confidence ${step.confidence}` : ""})`, step.feedback ? ` Told: ${step.feedback}.` : null);
  }

  function passed(information) {
    if (!information) return null;
    const entries = [["Disclosed", information.disclosed], ["Conveyed", information.conveyed], ["Understood", information.understood]].filter(([, text]) => text);
    for (const [field, text] of Object.entries(information.recorded ?? {})) entries.push([`Record, ${words(field)}`, text]);
    return entries.length ? pairs(entries, { class: "passed" }) : null;
  }

  function master(check) {
    if (!check) return null;
    const drafts = (check.rejected ?? []).map((draft) => make("div", {}, "Rejected: ", make("q", {}, draft.utterance ?? ""), ` ${verdict(draft.verdict)}`));
    const stands = check.edited ? "The line is the dialogue master's own." : check.passed === false ? `The line failed and stands. ${verdict(check.verdict)}` : check.passed === null || check.passed === undefined ? `Not checked${check.error ? `: ${check.error}` : ""}.` : "";
    return drafts.length || stands ? make("div", { class: "master" }, drafts, stands) : null;
  }

  function verdict(given) {
    const failed = Object.entries(given ?? {}).filter(([, value]) => value === false).map(([name]) => words(name));
    return [given?.critique, failed.length ? `(not ${failed.join(", not ")})` : ""].filter(Boolean).join(" ");
  }

  function ending(episode) {
    const why = { nurse_end: "The nurse ended the dialogue.", max_turns: "The questions ran out." }[episode.end_reason];
    return make("p", { class: "note" }, episode.skip_reason ? `Skipped: ${episode.skip_reason}` : episode.error ? `Failed: ${episode.error}` : why ?? "");
  }

  // What the nurse and the record held at a moment.
  function state(episode, now) {
    const record = Object.fromEntries(RECORD.map((field) => [field, OPEN]));
    const vitals = {};
    const flags = [];
    let level = null, latest = [];
    episode.timeline.slice(0, now + 1).forEach((item, index) => {
      if (item.information?.recorded) { Object.assign(record, item.information.recorded); if (index === now) latest = Object.keys(item.information.recorded); }
      if (item.event === "vital") { vitals[item.name] = measure(item.name, item.value) ?? "not measurable"; if (index === now) latest = [item.name]; }
      if (item.step?.red_flags) flags.push(...item.step.red_flags);
      level = item.step?.triage ?? item.triage ?? level;
    });
    const fields = Object.entries(record).map(([field, text]) => [words(field), text, latest.includes(field) ? "new" : null]);
    const taken = Object.entries(vitals).map(([name, value]) => [TEXT[name] ?? name, value, latest.includes(name) ? "new" : null]);
    const kept = episode.timeline.some((item) => item.information?.recorded);
    return [make("p", {}, "The nurse's level: ", make("strong", {}, String(level ?? "–"))),
      make("h4", {}, "Triage record"), kept ? pairs(fields) : make("p", { class: "note" }, "Nobody kept its texts: it takes a dialogue master."),
      make("h4", {}, "Vital signs taken"), taken.length ? pairs(taken) : make("p", { class: "note" }, "None yet."),
      flags.length ? make("h4", {}, "Red flags logged") : null, flags.length ? make("p", {}, [...new Set(flags)].join(", ")) : null].filter(Boolean);
  }

  function background(episode) {
    const facts = episode.case;
    const plain = ["age", "gender", "arrival_transport", "pain", "diagnoses", "medications", "expert_red_flags", "provenance"].filter((name) => facts[name] !== undefined).map((name) => [words(name), [facts[name]].flat().join(", ")]);
    const measured = Object.entries(facts.vitals ?? {}).map(([name, value]) => [TEXT[name] ?? name, measure(name, value) ?? "missing"]);
    const block = (title, entries) => entries.length ? make("details", {}, make("summary", {}, title), pairs(entries)) : null;
    const persona = (role) => Object.entries(episode[`${role}_persona`] ?? {}).map(([name, level]) => [words(name), words(level)]);
    const story = (value) => Object.entries(value ?? {}).filter(([, text]) => text !== null && String(text)).map(([name, text]) => [words(name), [text].flat().join("; ")]);
    return make("div", {}, make("h4", {}, "The case (the truth)"), pairs([...plain, ...measured]),
      block("Patient's persona", persona("patient")), block("Nurse's persona", persona("nurse")), block("Patient's script", story(episode.patient_script)),
      block("Appearance", story(episode.appearance)), block("Whether there would be a conversation", story(episode.in_situ)),
      block("What failed in the preparation", ["in_situ_error", "script_error", "appearance_error"].filter((name) => episode[name]).map((name) => [words(name), episode[name]])));
  }

  // ---- The page

  const themes = ["as the system", "light", "dark"];
  let theme = 0;
  at("theme").addEventListener("click", () => {
    theme = (theme + 1) % themes.length;
    if (theme) document.documentElement.dataset.theme = themes[theme];
    else delete document.documentElement.dataset.theme;
    at("theme").textContent = `Theme: ${themes[theme]}`;
  });
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...document.querySelectorAll("details:not([open])")]; opened.forEach((one) => { one.open = true; }); });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));

  function linked() {
    const [, name] = /^#dialogue=(.+)$/.exec(location.hash) ?? [];
    if (!name) return;
    const wanted = decodeURIComponent(name);
    const number = rows.findIndex((row) => `${names.pairing[row[0]]}/${row[1]}` === wanted);
    if (number >= 0 && number !== chosen) { show(number, false); at("dialogues").scrollIntoView(); }
  }

  let waiting = 0;
  unpack(at("index").textContent).then((index) => {
    ({ names, rows, chunk: size } = index);
    fill();
    at("filters").addEventListener("submit", (event) => event.preventDefault());
    at("filters").addEventListener("input", (event) => { clearTimeout(waiting); waiting = setTimeout(search, event.target.id === "query" ? 200 : 0); });
    at("filters").addEventListener("reset", () => { clearTimeout(waiting); waiting = setTimeout(search, 0); });
    at("earlier").addEventListener("click", () => turn(-SHOWN));
    at("later").addEventListener("click", () => turn(SHOWN));
    addEventListener("hashchange", linked);
    return search();
  }).then(linked, (error) => { at("found").textContent = `The dialogues can't be read: ${error.message}.`; });
})();
