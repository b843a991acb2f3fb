// A pasted cURL command or HAR file fills the form of a new event. This page reads the text by itself, so files and variables that the text names are not read.
"use strict";
// shellWords splits a command into words as a shell does.
function shellWords(text) {
	const words = [], escapes = { n: "\n", r: "\r", t: "\t" };
	let word = null;
	const add = s => { word = (word ?? "") + s; };
	for (let rest = text.trim(), m; rest; rest = rest.slice(m[0].length)) {
		if (m = /^\\\r?\n|^\s+/.exec(rest)) { if (!m[0].startsWith("\\")) { if (word !== null) words.push(word); word = null; } }
		else if (m = /^\$'((?:[^'\\]|\\[^])*)'/.exec(rest)) add(m[1].replace(/\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|([^]))/g, (_, x, u, U, octal, c) => c ? escapes[c] ?? c : String.fromCodePoint(octal ? parseInt(octal, 8) : parseInt(x ?? u ?? U, 16))));
		else if (m = /^'([^']*)'/.exec(rest)) add(m[1]);
		else if (m = /^"((?:[^"\\]|\\[^])*)"/.exec(rest)) {
			if (/(^|[^\\])(\\\\)*[$`]/.test(m[1])) throw new Error("variables in it are not read");
			add(m[1].replace(/\\\r?\n/g, "").replace(/\\(["\\$`])/g, "$1"));
		}
		else if (m = /^\\([^])/.exec(rest)) add(m[1]);
		else if (/^[$`]/.test(rest)) throw new Error("variables in it are not read");
		else if (m = /^[^\s'"\\$`|;&<>()]+/.exec(rest)) add(m[0]);
		else throw new Error(/^['"]/.test(rest) ? "a quote in it has no end" : "it is more than one command");
	}
	return word === null ? words : [...words, word];
}
const curlValues = { X: "request", H: "header", d: "data", A: "user-agent", e: "referer", b: "cookie", u: "user", F: "form", T: "upload-file", o: "output", m: "max-time", w: "write-out", x: "proxy", E: "cert" };
const curlSkipped = ["output", "max-time", "connect-timeout", "write-out", "retry", "cacert", "proxy", "resolve", "max-redirs", "limit-rate"];
const curlBare = /^(silent|show-error|insecure|location|include|verbose|compressed|fail|http1\.[01]|http2|no-buffer|globoff|path-as-is|fail-with-body|progress-bar|[sSkLivfNg#]+)$/;
// readCurl returns the request that a cURL command would send.
function readCurl(words) {
	const made = { method: "", url: "", headers: [], body: null }, data = [];
	let query = false;
	for (let i = 1; i < words.length; i++) {
		const word = words[i];
		if (!/^-./.test(word)) { made.url = word; continue; }
		let [, name, value] = /^--([^=]+)(?:=([^]*))?$/.exec(word) ?? [], bare = word.replace(/^--?/, "");
		if (!name && curlValues[word[1]]) [name, value] = [curlValues[word[1]], word.slice(2) || undefined];
		name ??= bare;
		if (name === "get" || name === "G") { query = true; continue; }
		if (name === "head" || name === "I") { made.method ||= "HEAD"; continue; }
		if (curlBare.test(name)) continue;
		value ??= words[++i] ?? "";
		const line = (header, text = value) => made.headers.push([header, text]);
		if (name.startsWith("data") && name !== "data-raw" && value.startsWith("@") || name === "json" && value.startsWith("@")) throw new Error("files that it names are not read");
		if (name === "request") made.method = value;
		else if (name === "url") made.url = value;
		else if (name === "header") { const at = value.search(/[:;]/); if (at < 0) throw new Error(`${value} is no header line`); if (value[at] === ";" || value.slice(at + 1).trim()) line(value.slice(0, at).trim(), value.slice(at + 1).trim()); }
		else if (/^data(-ascii|-raw|-binary)?$/.test(name)) data.push(value);
		else if (name === "data-urlencode" && /^[^=]*@/.test(value)) throw new Error("files that it names are not read");
		else if (name === "data-urlencode") { const at = value.indexOf("="); data.push(value.slice(0, at + 1) + encodeURIComponent(value.slice(at + 1))); }
		else if (name === "json") { data.push(value); for (const h of ["Content-Type", "Accept"]) line(h, "application/json"); }
		else if (name === "user-agent") line("User-Agent");
		else if (name === "referer") line("Referer");
		else if (name === "cookie" && value.includes("=")) line("Cookie");
		else if (name === "user") line("Authorization", `Basic ${btoa(value)}`);
		else if (!curlSkipped.includes(name)) throw new Error(`the option ${word} is not understood`);
	}
	if (data.length && query) made.url += (made.url.includes("?") ? "&" : "?") + data.join("&");
	else if (data.length) {
		made.body = words.some(w => w.startsWith("--json")) ? data.join("") : data.join("&");
		if (!made.headers.some(([name]) => name.toLowerCase() === "content-type")) made.headers.push(["Content-Type", "application/x-www-form-urlencoded"]);
	}
	made.method ||= made.body === null ? "GET" : "POST";
	return made;
}
// textOf decodes a body in base64. Bytes that are not UTF-8 are an error, because the form takes only text.
function textOf(base64) {
	try {
		return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(atob(base64), c => c.charCodeAt(0)));
	} catch {
		throw new Error("its body is no text; relay send --har sends it");
	}
}
function readHAR(file) {
	const requests = (file.log?.entries ?? [file]).map(entry => entry.request ?? entry), n = Math.min(requests.length, Math.max(1, Number($("#har-entry").value) || 1)), r = requests[n - 1];
	if (!r?.url) throw new Error("it has no request");
	setHidden($("#har-entry").parentNode, requests.length < 2);
	const data = r.postData;
	if (data && data.text === undefined && /^multipart/i.test(data.mimeType ?? "")) throw new Error("the file has the fields of its multipart body and not the body");
	const body = data?.encoding === "base64" ? textOf(data.text ?? "") : data ? data.text ?? new URLSearchParams((data.params ?? []).map(p => [p.name, p.value ?? ""])).toString() : null;
	return { method: r.method, url: r.url, headers: (r.headers ?? []).filter(h => !h.name.startsWith(":")).map(h => [h.name, h.value]), body, said: requests.length > 1 ? `Request ${n} of ${requests.length} of the file.` : "" };
}
function fillFrom({ method, url, headers, body, said }) {
	const field = name => $(`#send-${name}`), path = /^(?:[a-z][a-z0-9+.-]*:\/\/)?[^/?#]*([^#]*)/i.exec(url)[1];
	const host = field("headers").value.split("\n").filter(line => /^host:/i.test(line)); // the Host line stays, because the new event goes to this alias
	field("method").value = method;
	field("path").value = path.startsWith("/") ? path : `/${path}`;
	field("headers").value = [...host, ...headers.filter(([name]) => !/^(host|content-length|transfer-encoding|connection)$/i.test(name)).map(([name, value]) => `${name}: ${value}`)].join("\n");
	if (field("body")) field("body").value = body ?? "";
	announce(`Filled in. ${said || "Look through it, then preview it."}`);
	field("method").focus();
}
// If the user chooses to sign with a secret that is not stored, the fields for the secret are opened.
document.addEventListener("change", e => {
	if (e.target.id === "send-sign" && e.target.value === "given") $("#given").open = true;
});
document.addEventListener("click", e => {
	if (e.target.id !== "use-pasted") return;
	const text = $("#pasted").value.trim();
	try {
		if (text.startsWith("{")) return fillFrom(readHAR(JSON.parse(text)));
		const words = shellWords(text.replace(/^\$ /, ""));
		if (words[0] !== "curl") throw new Error("it begins neither with curl nor with {");
		fillFrom(readCurl(words));
	} catch (why) {
		announce(`This could not be read: ${why instanceof SyntaxError ? "it is no JSON" : why.message}.`, true);
	}
});
