// Asks the libraries of webhook senders about requests: an array of them on standard input,
// an array of answers on standard output: "" = accepted, else why it was refused.
const fs = require('node:fs');
const load = (name) => require(name);

const oracles = {
  adyen: (r) => new (load('@adyen/api-library').hmacValidator)().validateHMACSignature(r.secret, r.headers['hmacsignature'], r.body),
  'adyen-items': (r) => {
    const item = JSON.parse(r.body).notificationItems[0].NotificationRequestItem;
    return new (load('@adyen/api-library').hmacValidator)().validateHMAC(item, r.secret);
  },
  hubspot: (r) => load('@hubspot/api-client').Signature.isValid({
    signature: r.headers['x-hubspot-signature-v3'], clientSecret: r.secret, requestBody: r.body, url: r.url, method: r.method,
    signatureVersion: 'v3', timestamp: Number(r.headers['x-hubspot-request-timestamp']),
  }),
  'hubspot-v1': (r) => load('@hubspot/api-client').Signature.isValid({
    signature: r.headers['x-hubspot-signature'], clientSecret: r.secret, requestBody: r.body, url: r.url, method: r.method, signatureVersion: 'v1',
  }),
  'hubspot-v2': (r) => load('@hubspot/api-client').Signature.isValid({
    signature: r.headers['x-hubspot-signature'], clientSecret: r.secret, requestBody: r.body, url: r.url, method: r.method, signatureVersion: 'v2',
  }),
  line: (r) => load('@line/bot-sdk').validateSignature(r.body, r.secret, r.headers['x-line-signature']),
  linear: (r) => {
    const { LinearWebhookClient } = load('@linear/sdk/webhooks');
    return new LinearWebhookClient(r.secret).verify(Buffer.from(r.body), r.headers['linear-signature'], JSON.parse(r.body).webhookTimestamp);
  },
  mux: async (r) => { // throws what it refuses
    const Mux = load('@mux/mux-node').default;
    await new Mux({ tokenId: 'a', tokenSecret: 'b' }).webhooks.verifySignature(r.body, r.headers, r.secret);
    return true;
  },
  notion: (r) => load('@notionhq/client').verifyWebhookSignature({ body: r.body, signature: r.headers['x-notion-signature'], verificationToken: r.secret }),
  paddle: (r) => new (load('@paddle/paddle-node-sdk').Paddle)('key').webhooks.isSignatureValid(r.body, r.secret, r.headers['paddle-signature']),
  sanity: (r) => load('@sanity/webhook').isValidSignature(r.body, r.headers['sanity-webhook-signature'], r.secret),
  sendgrid: (r) => {
    const { EventWebhook } = load('@sendgrid/eventwebhook');
    const webhook = new EventWebhook();
    return webhook.verifySignature(webhook.convertPublicKeyToECDSA(r.secret), r.body,
      r.headers['x-twilio-email-event-webhook-signature'], r.headers['x-twilio-email-event-webhook-timestamp']);
  },
  shopify: async (r) => {
    load('@shopify/shopify-api/adapters/node');
    const { shopifyApi, ApiVersion } = load('@shopify/shopify-api');
    const shopify = shopifyApi({
      apiKey: 'key', apiSecretKey: r.secret, hostName: 'shop.example.com', isEmbeddedApp: false, scopes: ['read_products'],
      apiVersion: Object.values(ApiVersion)[0], logger: { log: () => {} },
    });
    const headers = { 'X-Shopify-Topic': 'a/b', 'X-Shopify-API-Version': '1', 'X-Shopify-Shop-Domain': 'a.myshopify.com', 'X-Shopify-Webhook-Id': '1', ...r.headers };
    const result = await shopify.webhooks.validate({ rawBody: r.body, rawRequest: { method: r.method, url: '/', headers }, rawResponse: {} });
    return result.valid;
  },
  workos: (r) => {
    const { WorkOS } = load('@workos-inc/node');
    return new WorkOS('sk_test').webhooks.verifyHeader({ payload: JSON.parse(r.body), sigHeader: r.headers['workos-signature'], secret: r.secret });
  },
  'coinbase-commerce': (r) => { load('coinbase-commerce-node').Webhook.verifySigHeader(r.body, r.headers['x-cc-webhook-signature'], r.secret); return true; },
  discord: (r) => load('discord-interactions').verifyKey(r.body, r.headers['x-signature-ed25519'], r.headers['x-signature-timestamp'], r.secret),
  gocardless: (r) => { load('gocardless-nodejs/webhooks').parse(r.body, r.secret, r.headers['webhook-signature']); return true; },
  razorpay: (r) => load('razorpay').validateWebhookSignature(r.body, r.headers['x-razorpay-signature'], r.secret),
  square: (r) => load('square').WebhooksHelper.verifySignature({
    requestBody: r.body, signatureHeader: r.headers['x-square-hmacsha256-signature'], signatureKey: r.secret, notificationUrl: r.url,
  }),
};

(async () => {
  const now = Date.now;
  const out = [];
  for (const r of JSON.parse(fs.readFileSync(0, 'utf8'))) {
    r.body = Buffer.from(r.body, 'base64').toString('utf8');
    Date.now = () => r.nowMs;
    const RealDate = Date;
    globalThis.Date = class extends RealDate {
      constructor(...args) { args.length ? super(...args) : super(r.nowMs); }
      static now() { return r.nowMs; }
    };
    try {
      const ok = await oracles[r.oracle](r);
      out.push(ok === false || ok === undefined ? 'refused' : '');
    } catch (e) {
      out.push(String((e && e.message) || e) || 'refused');
    } finally {
      globalThis.Date = RealDate;
      Date.now = now;
    }
  }
  process.stdout.write(JSON.stringify(out));
})();
