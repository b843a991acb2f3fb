// Reads a JSON list of HAR files from standard input and prints what programs that import HAR make of
// the request in each: {"fault"} for an archive that is not valid, or {"method", "url", "headers", "text"}.
"use strict";
const validator = require("har-validator");
const { HTTPSnippet } = require("httpsnippet");

async function read(har) {
	try {
		await validator.har(har);
	} catch (error) {
		return { fault: JSON.stringify(error.errors) };
	}
	const { method, fullUrl, allHeaders, postData } = new HTTPSnippet(har).requests[0];
	return { method, url: fullUrl, headers: allHeaders, text: postData.text ?? "" };
}

(async () => {
	let input = "";
	for await (const piece of process.stdin) input += piece;
	const out = [];
	for (const har of JSON.parse(input)) out.push(await read(har));
	process.stdout.write(JSON.stringify(out));
})();
