// Asks the libraries of webhook senders how they answer registration challenges: an array of requests on
// standard input, an array of answers on standard output. Where a library only computes what is to be sent,
// its answer has no status and no type.
const fs = require('node:fs');
const http = require('node:http');
const load = (name) => require(name);
console.debug = console.warn = console.error = () => {}; // standard output has the answers alone

// serve sends the request to a server that has the library's handler.
const serve = async (r, handler) => {
  const server = http.createServer(handler);
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  try {
    return await new Promise((done, fail) => {
      const request = http.request({ port: server.address().port, host: '127.0.0.1', method: r.method, path: r.path, headers: r.headers, agent: false }, (answer) => {
        const parts = [];
        answer.on('data', (part) => parts.push(part));
        answer.on('end', () => done({ status: answer.statusCode, type: answer.headers['content-type'] || '', body: Buffer.concat(parts).toString() }));
      });
      request.on('error', fail);
      request.end(r.body);
    });
  } finally {
    server.close();
  }
};

const libraries = {
  slack: (r) => {
    const { HTTPReceiver, LogLevel } = load('@slack/bolt');
    return serve(r, new HTTPReceiver({ signingSecret: r.secret, endpoints: [r.path], logLevel: LogLevel.ERROR }).requestListener);
  },
  zoom: async (r) => {
    const { AwsLambdaReceiver } = load('@zoom/rivet/accounts');
    const answer = await new AwsLambdaReceiver({ webhooksSecretToken: r.secret }).start()({ body: r.body, headers: r.headers, isBase64Encoded: false }, {});
    return { status: answer.statusCode, type: answer.headers['Content-Type'], body: answer.body };
  },
  discord: (r) => {
    const check = load('discord-interactions').verifyKeyMiddleware(r.secret);
    return serve(r, (req, res) => {
      req.header = (name) => req.headers[name.toLowerCase()]; // as Express has it
      check(req, res, () => { res.statusCode = 404; res.end(); });
    });
  },
  dropbox: (r) => { // Nylas asks as Dropbox does
    const Nylas = load('nylas').default;
    return { status: 0, type: '', body: new Nylas({ apiKey: 'key' }).webhooks.extractChallengeParameter('https://shop.example.com' + r.path) };
  },
  x: (r) => {
    const token = new URL('https://shop.example.com' + r.path).searchParams.get('crc_token');
    return { status: 0, type: 'application/json', body: JSON.stringify(load('twitter-autohook').validateWebhook(token, { consumer_secret: r.secret })) };
  },
};

(async () => {
  const out = [];
  for (const r of JSON.parse(fs.readFileSync(0, 'utf8'))) out.push(await libraries[r.challenge](r));
  process.stdout.write(JSON.stringify(out), () => process.exit(0));
})().catch((e) => { process.stderr.write(String(e.stack)); process.exit(1); });
