package record_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"relay"
	"relay/record"
)

// payloads has a request of each sender as in its documentation, with the type and the id in that request. A
// sender whose row has no type or no id documents none.
var payloads = []struct {
	body  string
	lines []string
	want  relay.Provider
}{
	{
		`{"ref":"refs/heads/main","commits":[{"id":"4f2c"}],"repository":{"id":1,"full_name":"ann/shop"},"sender":{"type":"User"}}`,
		[]string{"X-Forgejo-Event: push", "X-Forgejo-Delivery: 3f1e", "X-Gitea-Event: push", "X-Gitea-Delivery: 3f1e", "X-GitHub-Event: push", "X-Forgejo-Signature: aa"},
		relay.Provider{Name: "forgejo", EventType: "push", DeliveryID: "3f1e"},
	},
	{`{"ref":"refs/heads/main"}`, []string{"X-Gogs-Event: push", "X-Gogs-Delivery: 9b7a", "X-Gogs-Signature: aa"}, relay.Provider{Name: "gogs", EventType: "push", DeliveryID: "9b7a"}},
	{
		`{"push":{"changes":[{"new":{"type":"branch","name":"main"}}]},"repository":{"type":"repository"},"actor":{"type":"user"}}`,
		[]string{"X-Event-Key: repo:push", "X-Request-UUID: 6c5d1d0a", "X-Hook-UUID: 0b", "X-Attempt-Number: 1", "X-Hub-Signature: sha256=aa"},
		relay.Provider{Name: "bitbucket", EventType: "repo:push", DeliveryID: "6c5d1d0a"},
	},
	{
		`{"id":727,"status":"processing","total":"29.35","line_items":[{"id":315}]}`,
		[]string{"X-WC-Webhook-Source: https://shop.example/", "X-WC-Webhook-Topic: order.created", "X-WC-Webhook-Signature: aa=", "X-WC-Webhook-ID: 5", "X-WC-Webhook-Delivery-ID: 12af"},
		relay.Provider{Name: "woocommerce", EventType: "order.created", DeliveryID: "12af"},
	},
	{
		`{"id":"WH-58D329510W468432D-8HN650336L201105X","event_version":"1.0","resource_type":"sale","event_type":"PAYMENT.SALE.COMPLETED","resource":{"id":"1","state":"completed"}}`,
		[]string{"PAYPAL-TRANSMISSION-ID: 69cd13f0", "PAYPAL-TRANSMISSION-TIME: 2023-11-14T22:13:20Z", "PAYPAL-TRANSMISSION-SIG: aa", "PAYPAL-AUTH-ALGO: SHA256withRSA"},
		relay.Provider{Name: "paypal", EventType: "PAYMENT.SALE.COMPLETED", DeliveryID: "69cd13f0", SignedAt: signedAt},
	},
	{
		`{"event":"meeting.started","event_ts":1700000000000,"payload":{"account_id":"AAA","object":{"id":"1234","uuid":"x==","type":2}}}`,
		[]string{"x-zm-signature: v0=aa", "x-zm-request-timestamp: 1700000000"},
		relay.Provider{Name: "zoom", EventType: "meeting.started", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	{
		`{"action":"created","installation":{"uuid":"24b2"},"data":{"issue":{"id":"1170820242"}},"actor":{"type":"application","id":"sentry"}}`,
		[]string{"Request-ID: 4e1c", "Sentry-Hook-Resource: issue", "Sentry-Hook-Timestamp: 1700000000", "Sentry-Hook-Signature: aa"},
		relay.Provider{Name: "sentry", EventType: "issue", DeliveryID: "4e1c"},
	},
	{
		`{"type":"workflow-completed","id":"3888f21b-eaa7-38e3-8f3d-75a63bba8895","happened_at":"2023-11-14T22:13:20Z","webhook":{"id":"cf8c"},"workflow":{"id":"fda0"}}`,
		[]string{"circleci-event-type: workflow-completed", "circleci-signature: v1=aa"},
		relay.Provider{Name: "circleci", EventType: "workflow-completed", DeliveryID: "3888f21b-eaa7-38e3-8f3d-75a63bba8895"},
	},
	{
		`{"id":"uev_1","type":"deployment.created","createdAt":1700000000000,"payload":{"deployment":{"id":"dpl_1"}}}`,
		[]string{"x-vercel-signature: aa"},
		relay.Provider{Name: "vercel", EventType: "deployment.created", DeliveryID: "uev_1"},
	},
	{
		`{"meta":{"event_name":"order_created","custom_data":{"id":"1"}},"data":{"type":"orders","id":"1"}}`,
		[]string{"X-Event-Name: order_created", "X-Signature: aa"},
		relay.Provider{Name: "lemonsqueezy", EventType: "order_created"},
	},
	{
		`{"entity":"event","account_id":"acc_1","event":"payment.captured","contains":["payment"],"payload":{"payment":{"entity":{"id":"pay_1"}}}}`,
		[]string{"X-Razorpay-Signature: aa", "X-Razorpay-Event-Id: evt_r"},
		relay.Provider{Name: "razorpay", EventType: "payment.captured", DeliveryID: "evt_r"},
	},
	{
		`{"event_id":"LtWXD3crgy","event_type":"form_response","form_response":{"form_id":"lT4Z3j","answers":[{"type":"text"}]}}`,
		[]string{"Typeform-Signature: sha256=aa"},
		relay.Provider{Name: "typeform", EventType: "form_response", DeliveryID: "LtWXD3crgy"},
	},
	{
		`{"created_at":"2023-11-14T22:13:20.000000Z","created_by":"https://api.calendly.com/users/A","event":"invitee.created","payload":{"uri":"https://api.calendly.com/x","event":"https://api.calendly.com/y"}}`,
		[]string{"Calendly-Webhook-Signature: t=1700000000,v1=aa"},
		relay.Provider{Name: "calendly", EventType: "invitee.created", SignedAt: signedAt, Tolerance: 3 * time.Minute},
	},
	{
		`{"action":{"id":"51f9424bcd6e040f3c002412","idMemberCreator":"4fc7","data":{"board":{"id":"4eea"}},"type":"updateBoard","date":"2013-07-31T16:58:51.949Z"},"model":{"id":"4eea"}}`,
		[]string{"X-Trello-Webhook: aa="},
		relay.Provider{Name: "trello", EventType: "updateBoard", DeliveryID: "51f9424bcd6e040f3c002412"},
	},
	{
		`{"id":"367cba46","timestamp":"2024-12-05T23:55:34.285Z","workspace_id":"13950b26","type":"page.content_updated","entity":{"id":"0ef1","type":"page"},"data":{}}`,
		[]string{"X-Notion-Signature: sha256=aa"},
		relay.Provider{Name: "notion", EventType: "page.content_updated", DeliveryID: "367cba46"},
	},
	{
		`{"type":"video.asset.ready","object":{"type":"asset","id":"0201"},"id":"3a56ac3d","environment":{"name":"Production","id":"j0"},"data":{"id":"0201"}}`,
		[]string{"Mux-Signature: t=1700000000,v1=aa"},
		relay.Provider{Name: "mux", EventType: "video.asset.ready", DeliveryID: "3a56ac3d", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	{
		`{"type":"post_call_transcription","event_timestamp":1700000000,"data":{"agent_id":"xyz","conversation_id":"abc","status":"done"}}`,
		[]string{"ElevenLabs-Signature: t=1700000000,v0=aa"},
		relay.Provider{Name: "elevenlabs", EventType: "post_call_transcription", SignedAt: signedAt, Tolerance: 30 * time.Minute},
	},
	{
		`{"client_key":"bwo2m45353a6k85","event":"video.publish.completed","create_time":1700000000,"user_openid":"act.ex","content":"{\"share_id\":\"v\"}"}`,
		[]string{"TikTok-Signature: t=1700000000,s=aa"},
		relay.Provider{Name: "tiktok", EventType: "video.publish.completed", SignedAt: signedAt},
	},
	{
		`{"id":"event_01","event":"user.created","data":{"object":"user","id":"user_01"},"created_at":"2023-11-14T22:13:20.000Z"}`,
		[]string{"WorkOS-Signature: t=1700000000000, v1=aa"},
		relay.Provider{Name: "workos", EventType: "user.created", DeliveryID: "event_01", SignedAt: signedAt, Tolerance: 3 * time.Minute},
	},
	{
		`{"_id":"post-1","_type":"post","_rev":"abc","slug":{"current":"a"}}`,
		[]string{"sanity-webhook-signature: t=1700000000000,v1=aa", "idempotency-key: k1", "sanity-operation: update", "sanity-document-id: post-1"},
		relay.Provider{Name: "sanity", EventType: "update", DeliveryID: "k1", SignedAt: signedAt},
	},
	{
		`{"event":{"id":"5ac64822","event_type":"incident.acknowledged","resource_type":"incident","occurred_at":"2020-10-02T18:45:22.169Z","data":{"id":"PGR0VU2","type":"incident"}}}`,
		[]string{"X-PagerDuty-Signature: v1=aa", "X-Webhook-Id: b5e6", "X-Webhook-Subscription: PJ"},
		relay.Provider{Name: "pagerduty", EventType: "incident.acknowledged", DeliveryID: "b5e6"},
	},
	{
		`{"subscription":{"id":"f1c2","type":"channel.follow","version":"1","status":"enabled"},"event":{"user_id":"1337"}}`,
		[]string{"Twitch-Eventsub-Message-Id: e76c", "Twitch-Eventsub-Message-Timestamp: 2023-11-14T22:13:20Z", "Twitch-Eventsub-Message-Signature: sha256=aa", "Twitch-Eventsub-Subscription-Type: channel.follow"},
		relay.Provider{Name: "twitch", EventType: "channel.follow", DeliveryID: "e76c", SignedAt: signedAt, Tolerance: 10 * time.Minute},
	},
	{
		`{"type":"webhook_event","id":"0f1a","created_at":"2023-11-14T22:13:20-07:00","trigger":"FILE.UPLOADED","webhook":{"id":"123","type":"webhook"},"source":{"id":"73835521473","type":"file"}}`,
		[]string{"BOX-DELIVERY-ID: f96b", "BOX-DELIVERY-TIMESTAMP: 2023-11-14T22:13:20+00:00", "BOX-SIGNATURE-PRIMARY: aa", "BOX-SIGNATURE-VERSION: 1"},
		relay.Provider{Name: "box", EventType: "FILE.UPLOADED", DeliveryID: "f96b", SignedAt: signedAt, Tolerance: 10 * time.Minute},
	},
	{
		`{"destination":"xxx","events":[{"replyToken":"n","type":"message","mode":"active","timestamp":1700000000000,"source":{"type":"user"},"webhookEventId":"01FZ74A0TDDPYRVKNK77XKC3ZR","message":{"id":"4449","type":"text"}},{"type":"follow"}]}`,
		[]string{"X-Line-Signature: aa="},
		relay.Provider{Name: "line", EventType: "message", DeliveryID: "01FZ74A0TDDPYRVKNK77XKC3ZR"},
	},
	{`{"destination":"xxx","events":[]}`, []string{"X-Line-Signature: aa="}, relay.Provider{Name: "line"}},
	{`{"list_folder":{"accounts":["dbid:AAH4f99T0taONIb"]},"delta":{"users":[12345678]}}`, []string{"X-Dropbox-Signature: aa"}, relay.Provider{Name: "dropbox"}},
	{
		`{"events":[{"user":{"gid":"1","resource_type":"user"},"created_at":"2023-11-14T22:13:20.000Z","action":"changed","resource":{"gid":"2","resource_type":"task"},"parent":null}]}`,
		[]string{"X-Hook-Signature: aa"},
		relay.Provider{Name: "asana", EventType: "changed"},
	},
	{
		`{"event":"envelope-completed","apiVersion":"v2.1","uri":"/restapi/v2.1/x","retryCount":0,"configurationId":10,"generatedDateTime":"2023-11-14T22:13:20Z","data":{"envelopeId":"8f"}}`,
		[]string{"X-DocuSign-Signature-1: aa="},
		relay.Provider{Name: "docusign", EventType: "envelope-completed"},
	},
	{
		`{"id":1,"scheduled_for":"2017-01-31T20:50:02Z","attempt_number":1,"event":{"id":"24934862-d980-46cb-9402-43c81b0cdba6","resource":"event","type":"charge:created","data":{"id":"66BEOV2A"}}}`,
		[]string{"X-CC-Webhook-Signature: aa"},
		relay.Provider{Name: "coinbase-commerce", EventType: "charge:created", DeliveryID: "24934862-d980-46cb-9402-43c81b0cdba6"},
	},
	{ // the id comes after the event, in alphabetical order of the keys
		`{"attempt_number":1,"event":{"id":"24934862-d980-46cb-9402-43c81b0cdba6","resource":"event","type":"charge:created"},"id":"45d9fdb5-3c5f-4a0b-9d2a-2f6b1a1c0d11"}`,
		[]string{"X-CC-Webhook-Signature: aa"},
		relay.Provider{Name: "coinbase-commerce", EventType: "charge:created", DeliveryID: "45d9fdb5-3c5f-4a0b-9d2a-2f6b1a1c0d11"},
	},
	{
		`{"eventType":"onramp.transaction.created","transactionId":"1","status":"ONRAMP_TRANSACTION_STATUS_IN_PROGRESS"}`,
		[]string{"X-Hook0-Signature: t=1700000000,h=x-event-id,v1=aa"},
		relay.Provider{Name: "coinbase", EventType: "onramp.transaction.created", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	{
		`{"webhook_type":"TRANSACTIONS","webhook_code":"SYNC_UPDATES_AVAILABLE","item_id":"wz666","environment":"production"}`,
		[]string{"Plaid-Verification: a.b.c"},
		relay.Provider{Name: "plaid", EventType: "SYNC_UPDATES_AVAILABLE"},
	},
	{
		`{"base":{"id":"app00000000000000"},"webhook":{"id":"ach00000000000000"},"timestamp":"2022-02-01T21:25:05.663Z"}`,
		[]string{"X-Airtable-Content-MAC: hmac-sha256=aa"},
		relay.Provider{Name: "airtable"},
	},
	{
		`[{"specversion":"1.0","id":"88cd52aa","source":"intuit.dsn=","type":"qbo.account.created.v1","time":"2025-09-10T21:31:25Z","intuitentityid":"1234","data":{}}]`,
		[]string{"intuit-signature: aa="},
		relay.Provider{Name: "intuit", EventType: "qbo.account.created.v1", DeliveryID: "88cd52aa"},
	},
	{
		`{"eventNotifications":[{"realmId":"310687","dataChangeEvent":{"entities":[{"id":"1234","operation":"Create","name":"Account"}]}}]}`,
		[]string{"intuit-signature: aa="},
		relay.Provider{Name: "intuit"},
	},
	{
		`{"events":[{"resourceUrl":"https://api.xero.com/x","resourceId":"717f","eventDateUtc":"2017-06-21T01:15:39.902","eventType":"CREATE","eventCategory":"CONTACT","tenantId":"c2cc","tenantType":"ORGANISATION"}],"firstEventSequence":1,"lastEventSequence":1,"entropy":"S0m3r4Nd0mt3xt"}`,
		[]string{"x-xero-signature: aa="},
		relay.Provider{Name: "xero", EventType: "CREATE"},
	},
	{
		`{"id":"b1fbd3ae","created_at":"2016-08-31T21:55:06Z","resource":"build","action":"create","actor":{"id":"c5a3"},"data":{"id":"d7ba","status":"pending"},"webhook_metadata":{"event":{"id":"b1fb","include":"api:build"}}}`,
		[]string{"Heroku-Webhook-Hmac-SHA256: aa="},
		relay.Provider{Name: "heroku", EventType: "build", DeliveryID: "b1fbd3ae"},
	},
	{
		`{"testMode":false,"id":"weve_HseMWEZbRjmH3ED","webhookId":"whk_1","shopId":"sh_1","type":"ORDER_PLACED","apiVersion":"V1","createdAt":"2020-08-13T09:05:36Z","data":{"id":"1","type":"x"}}`,
		[]string{"X-Fourthwall-Hmac-SHA256: aa="},
		relay.Provider{Name: "fourthwall", EventType: "ORDER_PLACED", DeliveryID: "weve_HseMWEZbRjmH3ED"},
	},
	{
		`{"triggerType":"form_submission","payload":{"name":"Contact Us","siteId":"65427c","data":{"Email":"a@example.org"},"id":"6321"}}`,
		[]string{"x-webflow-timestamp: 1700000000000", "x-webflow-signature: aa"},
		relay.Provider{Name: "webflow", EventType: "form_submission", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
	{
		`{"events":[{"id":"EV00BD05S5VM2T","created_at":"2018-07-05T09:13:51.404Z","resource_type":"subscriptions","action":"created","links":{"subscription":"SB0003JJQ2MR06"}}],"meta":{"webhook_id":"WB0"}}`,
		[]string{"Webhook-Signature: aa"},
		relay.Provider{Name: "gocardless", EventType: "created", DeliveryID: "EV00BD05S5VM2T"},
	},
	{
		`{"triggerEvent":"BOOKING_CREATED","createdAt":"2023-05-24T09:30:00.538Z","payload":{"type":"60min","uid":"bFJe"}}`,
		[]string{"X-Cal-Signature-256: aa"},
		relay.Provider{Name: "cal", EventType: "BOOKING_CREATED"},
	},
	{
		`{"type":"config.secrets.update","config":{"name":"prd"},"project":{"id":"p"},"workplace":{"id":"w"},"diff":{"added":["A"]}}`,
		[]string{"X-Doppler-Signature: sha256=aa"},
		relay.Provider{Name: "doppler", EventType: "config.secrets.update"},
	},
	{
		`{"receiver":"My Super Webhook","status":"firing","orgId":1,"alerts":[{"status":"firing","labels":{"alertname":"High"}}],"groupLabels":{},"version":"1","groupKey":"{}:{}","title":"[FIRING:1]","state":"alerting"}`,
		[]string{"X-Grafana-Alerting-Signature: aa"},
		relay.Provider{Name: "grafana", EventType: "firing"},
	},
	{
		`{"operation":"publish","data":{"__typename":"Post","id":"ckv","stage":"PUBLISHED"}}`,
		[]string{"gcms-signature: sign=aa, env=master, t=1700000000000"},
		relay.Provider{Name: "hygraph", EventType: "publish", SignedAt: signedAt},
	},
	{
		`{"event":{"createInstant":1700000000000,"id":"9491dd9f","info":{"ipAddress":"42.42.42.42"},"tenantId":"e872","type":"user.create","user":{"id":"0000"}}}`,
		[]string{"X-FusionAuth-Signature-JWT: a.b.c"},
		relay.Provider{Name: "fusionauth", EventType: "user.create", DeliveryID: "9491dd9f"},
	},
	{
		`{"event":"statusChange","timestamp":"2024-01-15T10:30:00Z","id":"bc_abc123","status":"FINISHED"}`,
		[]string{"X-Webhook-Signature: sha256=aa", "X-Webhook-ID: msg_1", "X-Webhook-Event: statusChange"},
		relay.Provider{Name: "cursor", EventType: "statusChange", DeliveryID: "msg_1"},
	},
	{`{"id":"5f","site_id":"3970","state":"ready","name":"a","context":"production"}`, []string{"X-Webhook-Signature: a.b.c"}, relay.Provider{Name: "netlify"}},
	{`{"for_user_id":"2244994945","tweet_create_events":[{"id_str":"1"}]}`, []string{"x-twitter-webhooks-signature: sha256=aa="}, relay.Provider{Name: "x"}},
	{
		`{"data":{"balancePlatform":"P","id":"1W"},"environment":"test","timestamp":"2023-11-14T22:13:20Z","type":"balancePlatform.transfer.created"}`,
		[]string{"HmacSignature: aa=", "Protocol: HmacSHA256"},
		relay.Provider{Name: "adyen", EventType: "balancePlatform.transfer.created"},
	},
	{
		`{"live":"false","notificationItems":[{"NotificationRequestItem":{"additionalData":{"hmacSignature":"aa="},"amount":{"value":1130},"eventCode":"AUTHORISATION","pspReference":"7914073381342284","success":"true"}}]}`,
		nil,
		relay.Provider{Name: "adyen", EventType: "AUTHORISATION", DeliveryID: "7914073381342284"},
	},
	{`{"metadata":{"request_id":"6f5a","created":"2023-11-14T22:13:20Z"},"results":{"channels":[]}}`, []string{"dg-token: k"}, relay.Provider{Name: "deepgram", DeliveryID: "6f5a"}},
	{
		`{"nonce":"4b2ed20d-6f00-4b0c-8fac-082182aa9aac","timestamp":"2015-10-27T17:04:07.795+00:00","webhookId":4503604829677444,"scope":"sheet","scopeObjectId":8325895777609604,"events":[{"objectType":"sheet","eventType":"updated","id":8325895777609604,"userId":1}]}`,
		[]string{"Smartsheet-Hmac-SHA256: aa"},
		relay.Provider{Name: "smartsheet", EventType: "updated", DeliveryID: "4b2ed20d-6f00-4b0c-8fac-082182aa9aac"},
	},
	{
		`{"object":"whatsapp_business_account","entry":[{"id":"0","changes":[{"value":{"messages":[{"id":"wamid.x"}]},"field":"messages"}]}]}`,
		[]string{"X-Hub-Signature-256: sha256=aa"},
		relay.Provider{Name: "meta", EventType: "whatsapp_business_account"},
	},
	{
		`{"type":"notification_event","app_id":"a86","data":{"type":"notification_event_data","item":{"type":"conversation","id":"1"}},"topic":"conversation.user.created","id":"notif_1","delivery_attempts":1}`,
		[]string{"X-Hub-Signature: sha1=aa"},
		relay.Provider{Name: "intercom", EventType: "conversation.user.created", DeliveryID: "notif_1"},
	},
	{
		`{"order":1}`,
		[]string{"ce-specversion: 1.0", "ce-type: order.made", "ce-id: 7", "ce-source: /shop"},
		relay.Provider{Name: "cloudevents", EventType: "order.made", DeliveryID: "7"},
	},
	{
		`{"eventType":"com.okta.event_hook","eventTypeVersion":"1.0","cloudEventsVersion":"0.1","source":"https://o.example","eventId":"3OWo4oo-QQ","data":{"events":[{"uuid":"b1b2","eventType":"user.session.start"}]},"eventTime":"2023-11-14T22:13:20Z"}`,
		[]string{"Authorization: k"},
		relay.Provider{Name: "okta", EventType: "user.session.start", DeliveryID: "3OWo4oo-QQ"},
	},
	{
		`{"id":"ev_16BHbhF4s42tO2lK","occurred_at":1700000000,"source":"admin_console","object":"event","api_version":"v2","content":{"customer":{"id":"c"}},"event_type":"customer_created","webhook_status":"scheduled"}`,
		[]string{"Authorization: Basic dTpw"},
		relay.Provider{Name: "chargebee", EventType: "customer_created", DeliveryID: "ev_16BHbhF4s42tO2lK"},
	},
	{
		`{"value":[{"id":"lsgTZMr9KwAAA","subscriptionId":"7f10","subscriptionExpirationDateTime":"2023-11-20T11:00:00Z","clientState":"s","changeType":"updated","resource":"Users/1/Messages/2","tenantId":"84bd","resourceData":{"id":"AAMk"}}]}`,
		nil,
		relay.Provider{Name: "graph", EventType: "updated", DeliveryID: "lsgTZMr9KwAAA"},
	},
	{
		`{"RecordType":"Delivery","ServerID":23,"MessageStream":"outbound","MessageID":"883953f4","Recipient":"john@example.com","DeliveredAt":"2023-11-14T22:13:20Z"}`,
		[]string{"Authorization: Basic dTpw"},
		relay.Provider{Name: "postmark", EventType: "Delivery"},
	},
	{
		`{"version":1,"application_id":"1234560123453231555","type":1,"event":{"type":"APPLICATION_AUTHORIZED","timestamp":"2024-10-18T14:42:53.064834","data":{"user":{"id":"1"}}}}`,
		[]string{"X-Signature-Ed25519: aa", "X-Signature-Timestamp: 1700000000"},
		relay.Provider{Name: "discord", EventType: "APPLICATION_AUTHORIZED", SignedAt: signedAt},
	},
	{ // a request of polar: only its secret distinguishes it from others of Standard Webhooks
		`{"type":"order.created","timestamp":"2023-11-14T22:13:20Z","data":{"id":"57107b74-8400-4d80-a2fc-54c2b4239cb3","status":"paid","customer_id":"992fae2a-2a17-4b7a-8d9e-e287cf90131b"}}`,
		[]string{"webhook-id: msg_2QZ", "webhook-timestamp: 1700000000", "webhook-signature: v1,aa"},
		relay.Provider{Name: "standard-webhooks", EventType: "order.created", DeliveryID: "msg_2QZ", SignedAt: signedAt, Tolerance: 5 * time.Minute},
	},
}

var signedAt = time.Unix(1_700_000_000, 0).UTC()

func TestRecognisePayloads(t *testing.T) {
	t.Parallel()
	for _, c := range payloads {
		t.Run(c.want.Name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, recognise(c.body, c.lines...)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestEverySenderHasACase: each sender of the table is recognised in a test, except polar, whose requests
// look like Standard Webhooks.
func TestEverySenderHasACase(t *testing.T) {
	t.Parallel()
	tested := []string{"polar"}
	for _, c := range payloads {
		tested = append(tested, c.want.Name)
	}
	for _, c := range recognised {
		tested = append(tested, c.want.Name)
	}
	for _, name := range record.ProviderNames() {
		if !slices.Contains(tested, name) {
			t.Errorf("%s is not recognised in any test", name)
		}
	}
}
