package signature

import (
	"slices"
	"time"
)

// Values that many rows of the table have: signed texts, ages, a value of Oracle and a prefix.
const (
	body      = "{b}"
	dotted    = "{t}.{b}"
	dottedID  = "{id}.{t}.{b}"
	fiveMins  = 5 * time.Minute
	tenMins   = 10 * time.Minute
	library   = "library"
	sha256Hex = "sha256="
)

// standard returns the schemes of the Standard Webhooks specification, with a prefix for the names of
// header lines.
func standard(prefix string) []Scheme { return standardOf(prefix, Whsec, library) }

// standardOf is standard for a sender that reads the key in a different way.
func standardOf(prefix string, key Key, oracle string) []Scheme {
	s := Scheme{
		Header: prefix + "signature", IDHeader: prefix + "id", TimeHeader: prefix + "timestamp",
		Signed: dottedID, Form: Base64, Key: key, Layout: Versions, SigKey: "v1",
		Old: fiveMins, Future: fiveMins, Oracle: oracle,
	}
	return []Scheme{s}
}

// Senders is the table of known senders, in the order in which they are tried. A sender that imitates the
// requests of another sender comes before that sender.
var Senders = []Sender{
	{
		Name: "stripe", Mark: "stripe-signature", BodyEvent: "type", BodyDelivery: "id",
		Schemes: []Scheme{{Header: "Stripe-Signature", Signed: dotted, Layout: Pairs, TimeKey: "t", SigKey: "v1", Old: fiveMins, Oracle: library}},
	},
	{Name: "forgejo", Mark: "x-forgejo-event", Event: "x-forgejo-event", Delivery: "x-forgejo-delivery", Schemes: github("X-Forgejo-Signature")},
	{Name: "gitea", Mark: "x-gitea-event", Event: "x-gitea-event", Delivery: "x-gitea-delivery", Schemes: github("X-Gitea-Signature")},
	{Name: "gogs", Mark: "x-gogs-event", Event: "x-gogs-event", Delivery: "x-gogs-delivery", Schemes: github("X-Gogs-Signature")},
	{Name: "github", Mark: "x-github-event", Event: "x-github-event", Delivery: "x-github-delivery", Schemes: github("")},
	{
		Name: "gitlab", Mark: "x-gitlab-event", Event: "x-gitlab-event", Delivery: "x-gitlab-event-uuid",
		Schemes: append(standard("webhook-"), Scheme{Header: "X-Gitlab-Token", Digest: Equal}),
	},
	{
		Name: "bitbucket", Mark: "x-event-key", Also: "x-request-uuid", Event: "x-event-key", Delivery: "x-request-uuid",
		Schemes: []Scheme{{Header: "X-Hub-Signature", Signed: body, Prefix: sha256Hex}},
	},
	{
		Name: "slack", Mark: "x-slack-signature", BodyEvent: "type", BodyDelivery: "event_id", Nested: "event",
		FormJSON: "payload", FormEvent: []string{"command"},
		Schemes: []Scheme{{Header: "X-Slack-Signature", TimeHeader: "X-Slack-Request-Timestamp", Signed: "v0:{t}:{b}", Prefix: "v0=", Old: fiveMins, Oracle: library}},
	},
	{Name: "shopify", Mark: "x-shopify-topic", Event: "x-shopify-topic", Delivery: "x-shopify-webhook-id", Schemes: base64Body("X-Shopify-Hmac-Sha256", library)},
	{Name: "shopify", Mark: "shopify-topic", Also: "shopify-hmac-sha256", Event: "shopify-topic", Delivery: "shopify-webhook-id", Schemes: base64Body("shopify-hmac-sha256", "")},
	{Name: "woocommerce", Mark: "x-wc-webhook-topic", Event: "x-wc-webhook-topic", Delivery: "x-wc-webhook-delivery-id", Schemes: base64Body("X-WC-Webhook-Signature", "")},
	{Name: "svix", Mark: "svix-signature", Also: "svix-id", Delivery: "svix-id", BodyEvent: "type", Schemes: standard("svix-")},
	{
		Name: "standard-webhooks", Mark: "webhook-signature", Also: "webhook-id", Delivery: "webhook-id", BodyEvent: "type",
		Schemes: standard("webhook-"),
	},
	{
		// The requests look like those of Standard Webhooks. The row has its own name because the key is
		// read as text.
		Name: "polar", Mark: "webhook-signature", Also: "webhook-id", Delivery: "webhook-id", BodyEvent: "type",
		Schemes: standardOf("webhook-", Text, ""),
	},
	{
		Name: "sendgrid", Mark: "x-twilio-email-event-webhook-signature", BodyEvent: "event", BodyDelivery: "sg_event_id", Batch: true,
		Schemes: []Scheme{{
			Header: "X-Twilio-Email-Event-Webhook-Signature", TimeHeader: "X-Twilio-Email-Event-Webhook-Timestamp",
			Signed: "{t}{b}", Digest: ECDSA, Form: Base64, Key: PublicDER, Oracle: library,
		}},
	},
	{
		Name: "twilio", Mark: "x-twilio-signature", Delivery: "i-twilio-idempotency-token",
		FormEvent: []string{"MessageStatus", "SmsStatus", "CallStatus", "RecordingStatus"},
		Schemes:   []Scheme{{Header: "X-Twilio-Signature", Signed: "{url}", Digest: HMACSHA1, Form: Base64, Oracle: library, own: twilio}},
	},
	{
		Name: "paddle", Mark: "paddle-signature", BodyEvent: "event_type", BodyDelivery: "event_id",
		Schemes: []Scheme{{Header: "Paddle-Signature", Signed: "{t}:{b}", Layout: Pairs, TimeKey: "ts", SigKey: "h1", Joint: ";", Old: 5 * time.Second, Oracle: library}},
	},
	{
		Name: "linear", Mark: "linear-signature", Event: "linear-event", Delivery: "linear-delivery",
		Schemes: []Scheme{{Header: "Linear-Signature", TimeMember: "webhookTimestamp", Unit: Millis, Signed: body, Old: time.Minute, Future: time.Minute, Oracle: library}},
	},
	{
		Name: "discord", Mark: "x-signature-ed25519", Also: "x-signature-timestamp", BodyEvent: "type", BodyDelivery: "id", Nested: "event",
		Schemes: []Scheme{{Header: "X-Signature-Ed25519", TimeHeader: "X-Signature-Timestamp", Signed: "{t}{b}", Digest: Ed25519, Key: PublicHex, Oracle: library}},
	},
	{
		Name: "aws-sns", Mark: "x-amz-sns-message-type", Event: "x-amz-sns-message-type", Delivery: "x-amz-sns-message-id",
		Schemes: []Scheme{{Header: "x-amz-sns-message-type", Digest: Network}},
	},
	{
		Name: "square", Mark: "x-square-hmacsha256-signature", BodyEvent: "type", BodyDelivery: "event_id",
		Schemes: []Scheme{{Header: "X-Square-HmacSha256-Signature", Signed: "{url}{b}", Form: Base64, Oracle: library}},
	},
	{
		// eventId is not used as delivery id: it belongs to one of the events, and may not be unique.
		Name: "hubspot", Mark: "x-hubspot-signature-v3", BodyEvent: "subscriptionType", Batch: true,
		Schemes: []Scheme{{
			Header: "X-HubSpot-Signature-v3", TimeHeader: "X-HubSpot-Request-Timestamp", Unit: Millis,
			Signed: "{method}{url}{b}{t}", Form: Base64, Old: fiveMins, Oracle: library,
		}},
	},
	{
		Name: "hubspot", Mark: "x-hubspot-signature", BodyEvent: "subscriptionType", Batch: true,
		Schemes: []Scheme{
			{Header: "X-HubSpot-Signature", When: Field{"X-HubSpot-Signature-Version", "v2"}, Signed: "{secret}{method}{url}{b}", Digest: PlainSHA256, Oracle: library},
			{Header: "X-HubSpot-Signature", Signed: "{secret}{b}", Digest: PlainSHA256, Oracle: library},
		},
	},
	{
		Name: "zendesk", Mark: "x-zendesk-webhook-signature", Delivery: "x-zendesk-webhook-invocation-id", BodyEvent: "type",
		Schemes: []Scheme{{
			Header: "X-Zendesk-Webhook-Signature", TimeHeader: "X-Zendesk-Webhook-Signature-Timestamp", Unit: Instant,
			Signed: "{t}{b}", Form: Base64,
		}},
	},
	{
		Name: "paypal", Mark: "paypal-transmission-sig", Delivery: "paypal-transmission-id", BodyEvent: "event_type",
		Schemes: []Scheme{{Header: "PAYPAL-TRANSMISSION-SIG", TimeHeader: "PAYPAL-TRANSMISSION-TIME", Unit: Instant, Digest: Network}},
	},
	{
		Name: "zoom", Mark: "x-zm-signature", BodyEvent: "event",
		Schemes: []Scheme{{Header: "x-zm-signature", TimeHeader: "x-zm-request-timestamp", Signed: "v0:{t}:{b}", Prefix: "v0=", Old: fiveMins}},
	},
	{
		Name: "sentry", Mark: "sentry-hook-resource", Event: "sentry-hook-resource", Delivery: "request-id",
		Schemes: hexBody("Sentry-Hook-Signature", "", ""),
	},
	{
		Name: "circleci", Mark: "circleci-signature", Event: "circleci-event-type", BodyDelivery: "id",
		Schemes: []Scheme{{Header: "circleci-signature", Signed: body, Layout: Pairs, SigKey: "v1"}},
	},
	{
		Name: "vercel", Mark: "x-vercel-signature", BodyEvent: "type", BodyDelivery: "id",
		Schemes: []Scheme{{Header: "x-vercel-signature", Signed: body, Digest: HMACSHA1}},
	},
	{Name: "lemonsqueezy", Mark: "x-event-name", Also: "x-signature", Event: "x-event-name", Schemes: hexBody("X-Signature", "", "")},
	{Name: "razorpay", Mark: "x-razorpay-signature", Delivery: "x-razorpay-event-id", BodyEvent: "event", Schemes: hexBody("X-Razorpay-Signature", "", library)},
	{
		Name: "typeform", Mark: "typeform-signature", BodyEvent: "event_type", BodyDelivery: "event_id",
		Schemes: []Scheme{{Header: "Typeform-Signature", Signed: body, Prefix: sha256Hex, Form: Base64}},
	},
	{
		Name: "calendly", Mark: "calendly-webhook-signature", BodyEvent: "event",
		Schemes: []Scheme{{Header: "Calendly-Webhook-Signature", Signed: dotted, Layout: Pairs, TimeKey: "t", SigKey: "v1", Old: 3 * time.Minute, Future: 3 * time.Minute}},
	},
	{
		Name: "trello", Mark: "x-trello-webhook", Nested: "action", BodyEvent: "type", BodyDelivery: "id",
		Schemes: []Scheme{{Header: "X-Trello-Webhook", Signed: "{b}{url}", Digest: HMACSHA1, Form: Base64}},
	},
	{Name: "notion", Mark: "x-notion-signature", BodyEvent: "type", BodyDelivery: "id", Schemes: hexBody("X-Notion-Signature", sha256Hex, library)},
	{
		Name: "mux", Mark: "mux-signature", BodyEvent: "type", BodyDelivery: "id",
		Schemes: []Scheme{{Header: "Mux-Signature", Signed: dotted, Layout: Pairs, TimeKey: "t", SigKey: "v1", Old: fiveMins, Oracle: library}},
	},
	{
		Name: "elevenlabs", Mark: "elevenlabs-signature", BodyEvent: "type",
		Schemes: []Scheme{{Header: "ElevenLabs-Signature", Signed: dotted, Layout: Pairs, TimeKey: "t", SigKey: "v0", Old: 30 * time.Minute}},
	},
	{
		Name: "tiktok", Mark: "tiktok-signature", BodyEvent: "event",
		Schemes: []Scheme{{Header: "TikTok-Signature", Signed: dotted, Layout: Pairs, TimeKey: "t", SigKey: "s"}},
	},
	{
		Name: "workos", Mark: "workos-signature", BodyEvent: "event", BodyDelivery: "id",
		Schemes: []Scheme{{
			Header: "WorkOS-Signature", Unit: Millis, Signed: dotted, Layout: Pairs, TimeKey: "t", SigKey: "v1", Joint: ", ",
			Old: 3 * time.Minute, Oracle: library,
		}},
	},
	{
		Name: "sanity", Mark: "sanity-webhook-signature", Event: "sanity-operation", Delivery: "idempotency-key",
		Schemes: []Scheme{{Header: "sanity-webhook-signature", Unit: Millis, Signed: dotted, Form: Base64URL, Layout: Pairs, TimeKey: "t", SigKey: "v1", Oracle: library}},
	},
	{
		Name: "pagerduty", Mark: "x-pagerduty-signature", Delivery: "x-webhook-id", BodyEvent: "event_type", Nested: "event",
		Schemes: []Scheme{{Header: "X-PagerDuty-Signature", Signed: body, Layout: Pairs, SigKey: "v1"}},
	},
	{
		Name: "twitch", Mark: "twitch-eventsub-message-signature", Event: "twitch-eventsub-subscription-type", Delivery: "twitch-eventsub-message-id",
		Schemes: []Scheme{{
			Header: "Twitch-Eventsub-Message-Signature", IDHeader: "Twitch-Eventsub-Message-Id", TimeHeader: "Twitch-Eventsub-Message-Timestamp", Unit: Instant,
			Signed: "{id}{t}{b}", Prefix: sha256Hex, Old: tenMins,
		}},
	},
	{
		Name: "box", Mark: "box-signature-primary", Delivery: "box-delivery-id", BodyEvent: "trigger",
		Schemes: []Scheme{{
			Header: "BOX-SIGNATURE-PRIMARY", More: []string{"BOX-SIGNATURE-SECONDARY"}, TimeHeader: "BOX-DELIVERY-TIMESTAMP", Unit: Instant,
			Signed: "{b}{t}", Form: Base64, Old: tenMins,
		}},
	},
	{
		Name: "line", Mark: "x-line-signature", Nested: "events", BodyEvent: "type", BodyDelivery: "webhookEventId",
		Schemes: base64Body("X-Line-Signature", library),
	},
	{Name: "dropbox", Mark: "x-dropbox-signature", Schemes: hexBody("X-Dropbox-Signature", "", "")},
	{Name: "asana", Mark: "x-hook-signature", Nested: "events", BodyEvent: "action", Schemes: hexBody("X-Hook-Signature", "", "")},
	{
		Name: "docusign", Mark: "x-docusign-signature-1", BodyEvent: "event",
		Schemes: []Scheme{{
			Header: "X-DocuSign-Signature-1", More: []string{"X-DocuSign-Signature-2", "X-DocuSign-Signature-3", "X-DocuSign-Signature-4"},
			Signed: body, Form: Base64,
		}},
	},
	{
		Name: "coinbase-commerce", Mark: "x-cc-webhook-signature", BodyEvent: "type", BodyDelivery: "id", Nested: "event",
		Schemes: hexBody("X-CC-Webhook-Signature", "", library),
	},
	{
		Name: "coinbase", Mark: "x-hook0-signature", BodyEvent: "eventType",
		Schemes: []Scheme{{Header: "X-Hook0-Signature", Signed: dotted, Layout: Pairs, TimeKey: "t", SigKey: "v1", Old: fiveMins, own: hook0}},
	},
	{Name: "plaid", Mark: "plaid-verification", BodyEvent: "webhook_code", Schemes: []Scheme{{Header: "Plaid-Verification", Digest: Network}}},
	{
		Name: "airtable", Mark: "x-airtable-content-mac",
		Schemes: []Scheme{{Header: "X-Airtable-Content-MAC", Signed: body, Prefix: "hmac-sha256=", Key: KeyBase64}},
	},
	{Name: "intuit", Mark: "intuit-signature", BodyEvent: "type", BodyDelivery: "id", Batch: true, Schemes: base64Body("intuit-signature", "")},
	{Name: "xero", Mark: "x-xero-signature", Nested: "events", BodyEvent: "eventType", Schemes: base64Body("x-xero-signature", "")},
	{Name: "heroku", Mark: "heroku-webhook-hmac-sha256", BodyEvent: "resource", BodyDelivery: "id", Schemes: base64Body("Heroku-Webhook-Hmac-SHA256", "")},
	{Name: "fourthwall", Mark: "x-fourthwall-hmac-sha256", BodyEvent: "type", BodyDelivery: "id", Schemes: base64Body("X-Fourthwall-Hmac-SHA256", "")},
	{
		Name: "webflow", Mark: "x-webflow-signature", BodyEvent: "triggerType",
		Schemes: []Scheme{{Header: "x-webflow-signature", TimeHeader: "x-webflow-timestamp", Unit: Millis, Signed: "{t}:{b}", Old: fiveMins}},
	},
	{Name: "gocardless", Mark: "webhook-signature", Nested: "events", BodyEvent: "action", BodyDelivery: "id", Schemes: hexBody("Webhook-Signature", "", library)},
	{Name: "cal", Mark: "x-cal-signature-256", BodyEvent: "triggerEvent", Schemes: hexBody("X-Cal-Signature-256", "", "")},
	{Name: "doppler", Mark: "x-doppler-signature", BodyEvent: "type", Schemes: hexBody("X-Doppler-Signature", sha256Hex, "")},
	{Name: "grafana", Mark: "x-grafana-alerting-signature", BodyEvent: "status", Schemes: hexBody("X-Grafana-Alerting-Signature", "", "")},
	{
		Name: "hygraph", Mark: "gcms-signature", BodyEvent: "operation",
		Schemes: []Scheme{{
			Header: "gcms-signature", Unit: Millis, Signed: body, Form: Base64, Layout: Pairs, TimeKey: "t", SigKey: "sign", Joint: ", ",
			own: hygraph,
		}},
	},
	{
		Name: "fusionauth", Mark: "x-fusionauth-signature-jwt", Nested: "event", BodyEvent: "type", BodyDelivery: "id",
		Schemes: []Scheme{{Header: "X-FusionAuth-Signature-JWT", own: jwt("X-FusionAuth-Signature-JWT", "request_body_sha256", Base64, "")}},
	},
	{
		Name: "cursor", Mark: "x-webhook-signature", Also: "x-webhook-event", Event: "x-webhook-event", Delivery: "x-webhook-id",
		Schemes: hexBody("X-Webhook-Signature", sha256Hex, ""),
	},
	{
		Name: "netlify", Mark: "x-webhook-signature",
		Schemes: []Scheme{{Header: "X-Webhook-Signature", own: jwt("X-Webhook-Signature", "sha256", Hex, `"iss":"netlify",`)}},
	},
	{
		Name: "x", Mark: "x-twitter-webhooks-signature",
		Schemes: []Scheme{{Header: "x-twitter-webhooks-signature", Signed: body, Prefix: sha256Hex, Form: Base64}},
	},
	{
		Name: "mandrill", Mark: "x-mandrill-signature", BodyEvent: "event", BodyDelivery: "_id", Batch: true, FormJSON: "mandrill_events",
		Schemes: []Scheme{{Header: "X-Mandrill-Signature", Signed: "{url}", Digest: HMACSHA1, Form: Base64, own: mandrill}},
	},
	{
		Name: "adyen", Mark: "hmacsignature", BodyEvent: "type",
		Schemes: []Scheme{{Header: "HmacSignature", Signed: body, Form: Base64, Key: KeyHex, Oracle: library}},
	},
	{
		Name: "event-grid", Mark: "aeg-event-type", BodyEvent: "eventType", BodyDelivery: "id", Batch: true,
		Schemes: []Scheme{{Digest: Equal, own: querySecret}},
	},
	{Name: "deepgram", Mark: "dg-token", Nested: "metadata", BodyDelivery: "request_id", Schemes: []Scheme{{Header: "dg-token", Digest: Equal}}},
	{
		Name: "smartsheet", Mark: "smartsheet-hmac-sha256", Nested: "events", BodyEvent: "eventType", BodyDelivery: "nonce",
		Schemes: hexBody("Smartsheet-Hmac-SHA256", "", ""),
	},
	{Name: "meta", Mark: "x-hub-signature-256", BodyEvent: "object", Schemes: hexBody("X-Hub-Signature-256", sha256Hex, "")},
	{
		Name: "intercom", Mark: "x-hub-signature", BodyEvent: "topic", BodyDelivery: "id",
		Schemes: []Scheme{{Header: "X-Hub-Signature", Signed: body, Prefix: "sha1=", Digest: HMACSHA1}},
	},
	{Name: "cloudevents", Mark: "ce-specversion", Event: "ce-type", Delivery: "ce-id"},
	{Name: "cloudevents", Kind: "application/cloudevents", BodyEvent: "type", BodyDelivery: "id", Batch: true},
	{
		Name: "mailgun", Body: []string{`"signature"`, `"event-data"`}, Nested: "event-data", BodyEvent: "event", BodyDelivery: "id",
		Schemes: []Scheme{{Signed: "{t}{id}", TimeMember: "signature", own: mailgun}},
	},
	{
		Name: "adyen", Body: []string{`"live"`, `"notificationItems"`}, Nested: "notificationItems.NotificationRequestItem", BodyEvent: "eventCode", BodyDelivery: "pspReference",
		Schemes: []Scheme{{Key: KeyHex, Form: Base64, Oracle: library, own: adyenItems}},
	},
	{
		Name: "okta", Body: []string{`"eventType"`, `"cloudEventsVersion"`}, BodyEvent: "eventType", BodyDelivery: "eventId", Nested: "data.events",
		Schemes: authorization(),
	},
	{Name: "chargebee", Body: []string{`"occurred_at"`, `"api_version"`}, BodyEvent: "event_type", BodyDelivery: "id", Schemes: authorization()},
	{
		Name: "graph", Body: []string{`"subscriptionId"`, `"changeType"`}, Nested: "value", BodyEvent: "changeType", BodyDelivery: "id",
		Schemes: []Scheme{{Digest: Equal, own: clientState}},
	},
	{
		Name: "monday", Body: []string{`"event"`, `"boardId"`}, Nested: "event", BodyEvent: "type", BodyDelivery: "triggerUuid",
		Schemes: []Scheme{{Header: "Authorization", TimeKey: "iat", Old: fiveMins, own: jwt("Authorization", "", Hex, "")}},
	},
	{Name: "postmark", Body: []string{`"RecordType"`, `"MessageStream"`}, BodyEvent: "RecordType", Schemes: authorization()},
}

func hexBody(header, prefix, oracle string) []Scheme {
	return []Scheme{{Header: header, Signed: body, Prefix: prefix, Oracle: oracle}}
}

func base64Body(header, oracle string) []Scheme {
	return []Scheme{{Header: header, Signed: body, Form: Base64, Oracle: oracle}}
}

// github returns the schemes of GitHub and of its imitators, which also send a line with a name of their
// own; that line takes precedence.
func github(own string) []Scheme {
	list := []Scheme{
		{Header: "X-Hub-Signature-256", Signed: body, Prefix: sha256Hex, Oracle: library},
		{Header: "X-Hub-Signature", Signed: body, Prefix: "sha1=", Digest: HMACSHA1, Oracle: library},
	}
	if own != "" {
		list = append([]Scheme{{Header: own, Signed: body}}, list...)
	}
	return list
}

// authorization returns the schemes of senders that send the secret itself in Authorization.
func authorization() []Scheme {
	return []Scheme{{Header: "Authorization", Digest: Equal}}
}

// Alike returns the name of p, and then the names of the senders whose requests look like those of p.
func Alike(p *Sender) []string {
	names := []string{p.Name}
	for i := range Senders {
		s := &Senders[i]
		if p.Mark != "" && s.Mark == p.Mark && s.Also == p.Also && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}
