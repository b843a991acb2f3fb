"""Writes vectors.json: one signed request for each row of the table that no library of its sender checks.

  python3 vectors.py > vectors.json

PUBLISHED requests are taken as they are from the place that source names: secret, body and signature. The others
are computed here, from the rule that source documents, with nothing of the program under test.
"""

import base64
import hashlib
import hmac
import json

BODY = '{"id":"evt_1","type":"invoice.paid","name":"Zoë €"}'
URL = "https://shop.example.com/hook?a=1"
FORM = "b=2&a=1&a=1&c=%C3%A9"
SECRET = "a secret of the test"
T = "1790000000"
MS = T + "000"
AT = "2026-09-21T14:13:20.000Z"


def mac(signed, key=SECRET, by="sha256"):
    key = key if isinstance(key, bytes) else key.encode()
    return hmac.new(key, signed.encode(), by)


def hexed(signed, key=SECRET, by="sha256"):
    return mac(signed, key, by).hexdigest()


def b64(signed, key=SECRET, by="sha256"):
    return base64.b64encode(mac(signed, key, by).digest()).decode()


def token(claims, secret=SECRET):
    def part(raw):
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    signed = part(b'{"alg":"HS256","typ":"JWT"}') + "." + part(claims.encode())
    return signed + "." + part(mac(signed, secret).digest())


def digest(body):
    return hashlib.sha256(body.encode()).digest()


rows = []


def row(sender, source, lines, body=BODY, secret=SECRET, url=URL, at=AT, change=("paid", "void"), line=None, kind="computed"):
    """line names the row of the table; change is a change that makes the request invalid."""
    rows.append({
        "sender": sender, "line": lines[0][0] if line is None else line, "kind": kind, "source": source, "at": at,
        "secret": secret, "url": url, "lines": [list(x) for x in lines], "body": body, "change": list(change),
    })


def published(*args, **more):
    row(*args, kind="published", **more)


# The digest of the body in hex.
for sender, source, name, prefix in [
    ("forgejo", "https://forgejo.org/docs/latest/user/webhooks/", "X-Forgejo-Signature", ""),
    ("gitea", "https://docs.gitea.com/usage/repository/webhooks", "X-Gitea-Signature", ""),
    ("gogs", "https://gogs.io/advancing/webhooks", "X-Gogs-Signature", ""),
    ("bitbucket", "https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/", "X-Hub-Signature", "sha256="),
    ("sentry", "https://docs.sentry.io/integrations/integration-platform/webhooks/", "Sentry-Hook-Signature", ""),
    ("lemonsqueezy", "https://docs.lemonsqueezy.com/help/webhooks/signing-requests", "X-Signature", ""),
    ("dropbox", "https://www.dropbox.com/developers/reference/webhooks", "X-Dropbox-Signature", ""),
    ("asana", "https://developers.asana.com/docs/webhooks-guide", "X-Hook-Signature", ""),
    ("cal", "https://cal.com/docs/developing/guides/automation/webhooks", "X-Cal-Signature-256", ""),
    ("doppler", "https://docs.doppler.com/docs/webhooks", "X-Doppler-Signature", "sha256="),
    ("grafana", "https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/webhook-notifier/", "X-Grafana-Alerting-Signature", ""),
    ("cursor", "https://cursor.com/docs/cloud-agent/api/webhooks", "X-Webhook-Signature", "sha256="),
    ("smartsheet", "https://developers.smartsheet.com/api/smartsheet/guides/webhooks/webhook-callbacks", "Smartsheet-Hmac-SHA256", ""),
    ("meta", "https://developers.facebook.com/docs/graph-api/webhooks/getting-started", "X-Hub-Signature-256", "sha256="),
    ("pagerduty", "https://developer.pagerduty.com/docs/verifying-webhook-signatures", "X-PagerDuty-Signature", "v1="),
]:
    row(sender, source, [(name, prefix + hexed(BODY))])
row("vercel", "https://vercel.com/docs/webhooks/webhooks-api", [("x-vercel-signature", hexed(BODY, by="sha1"))])
row("intercom", "https://developers.intercom.com/docs/webhooks", [("X-Hub-Signature", "sha1=" + hexed(BODY, by="sha1"))])

# The digest of the body in base64.
for sender, source, name, prefix in [
    ("shopify", "https://shopify.dev/docs/apps/build/webhooks", "shopify-hmac-sha256", ""),
    ("woocommerce", "https://woocommerce.com/document/webhooks/", "X-WC-Webhook-Signature", ""),
    ("typeform", "https://www.typeform.com/developers/webhooks/secure-your-webhooks/", "Typeform-Signature", "sha256="),
    ("docusign", "https://developers.docusign.com/platform/webhooks/connect/hmac/", "X-DocuSign-Signature-1", ""),
    ("intuit", "https://developer.intuit.com/app/developer/qbo/docs/develop/webhooks", "intuit-signature", ""),
    ("xero", "https://developer.xero.com/documentation/guides/webhooks/overview/", "x-xero-signature", ""),
    ("heroku", "https://devcenter.heroku.com/articles/app-webhooks", "Heroku-Webhook-Hmac-SHA256", ""),
    ("fourthwall", "https://docs.fourthwall.com/webhooks/signature-verification/", "X-Fourthwall-Hmac-SHA256", ""),
    ("x", "https://docs.x.com/x-api/webhooks/introduction", "x-twitter-webhooks-signature", "sha256="),
]:
    row(sender, source, [(name, prefix + b64(BODY))])
KEY = base64.b64encode(b"a key of 24 bytes.......").decode()
row("airtable", "https://airtable.com/developers/web/api/webhooks-overview",
    [("X-Airtable-Content-MAC", "hmac-sha256=" + hexed(BODY, base64.b64decode(KEY)))], secret=KEY)

# A time is signed, too.
row("zendesk", "https://developer.zendesk.com/documentation/webhooks/verifying/",
    [("X-Zendesk-Webhook-Signature", b64(AT + BODY)), ("X-Zendesk-Webhook-Signature-Timestamp", AT)])
row("zoom", "https://developers.zoom.us/docs/api/webhooks/",
    [("x-zm-signature", "v0=" + hexed("v0:" + T + ":" + BODY)), ("x-zm-request-timestamp", T)])
row("calendly", "https://developer.calendly.com/api-docs/overview/webhooks/webhook-signatures",
    [("Calendly-Webhook-Signature", "t=" + T + ",v1=" + hexed(T + "." + BODY))])
row("elevenlabs", "https://elevenlabs.io/docs/product-guides/administration/webhooks",
    [("ElevenLabs-Signature", "t=" + T + ",v0=" + hexed(T + "." + BODY))])
row("tiktok", "https://developers.tiktok.com/doc/webhooks-verification",
    [("TikTok-Signature", "t=" + T + ",s=" + hexed(T + "." + BODY))])
row("webflow", "https://developers.webflow.com/data/docs/working-with-webhooks",
    [("x-webflow-signature", hexed(MS + ":" + BODY)), ("x-webflow-timestamp", MS)])
row("twitch", "https://dev.twitch.tv/docs/eventsub/handling-webhook-events/",
    [("Twitch-Eventsub-Message-Signature", "sha256=" + hexed("msg_1" + AT + BODY)),
     ("Twitch-Eventsub-Message-Id", "msg_1"), ("Twitch-Eventsub-Message-Timestamp", AT)])
row("polar", "https://polar.sh/docs/integrate/webhooks/delivery",
    [("webhook-signature", "v1," + b64("msg_1." + T + "." + BODY)), ("webhook-id", "msg_1"), ("webhook-timestamp", T)])
# JSON in JSON, as JavaScript writes it.
HYGRAPH = '{"Body":' + json.dumps(BODY, ensure_ascii=False) + ',"EnvironmentName":"master","TimeStamp":' + MS + "}"
row("hygraph", "https://github.com/hygraph/hygraph-utils", [("gcms-signature", "sign=" + b64(HYGRAPH) + ", env=master, t=" + MS)])

# The URL is signed.
row("trello", "https://developer.atlassian.com/cloud/trello/guides/rest-api/webhooks/",
    [("X-Trello-Webhook", b64(BODY + URL, by="sha1"))])
row("mandrill", "https://mailchimp.com/developer/transactional/guides/track-respond-activity-webhooks/",
    [("X-Mandrill-Signature", b64(URL + "a1a1b2cé", by="sha1"))], body=FORM, change=("b=2", "b=3"))

# Tokens.
row("fusionauth", "https://fusionauth.io/docs/extend/events-and-webhooks/signing",
    [("X-FusionAuth-Signature-JWT", token('{"request_body_sha256":"' + base64.b64encode(digest(BODY)).decode() + '"}'))])
row("netlify", "https://docs.netlify.com/deploy/deploy-notifications/",
    [("X-Webhook-Signature", token('{"iss":"netlify","sha256":"' + digest(BODY).hex() + '"}'))])
MONDAY = token('{"iat":' + T + ',"exp":' + str(int(T) + 300) + "}")
row("monday", "https://developer.monday.com/apps/docs/authorization-header", [("Authorization", MONDAY)], change=(MONDAY[-9:], "AAAAAAAAA"))

# The signature is in the body.
row("mailgun", "https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks", [],
    body='{"signature":{"timestamp":"' + T + '","token":"tok","signature":"' + hexed(T + "tok") + '"},"event-data":{"event":"opened"}}',
    change=('"tok"', '"tuk"'), line="")

# The secret itself is sent.
for sender, source, name in [
    ("gitlab", "https://docs.gitlab.com/user/project/integrations/webhooks/", "X-Gitlab-Token"),
    ("deepgram", "https://developers.deepgram.com/docs/using-callbacks-to-return-transcripts-to-your-server", "dg-token"),
    ("okta", "https://developer.okta.com/docs/concepts/event-hooks/", "Authorization"),
    ("chargebee", "https://www.chargebee.com/docs/webhook_settings.html", "Authorization"),
    ("postmark", "https://postmarkapp.com/developer/webhooks/webhooks-overview", "Authorization"),
]:
    row(sender, source, [(name, SECRET)], change=("secret", "secrat"))
row("graph", "https://learn.microsoft.com/graph/change-notifications-delivery-webhooks", [], line="",
    body='{"value":[{"subscriptionId":"s1","changeType":"created","clientState":"' + SECRET + '"}]}', change=("secret", "secrat"))
row("event-grid", "https://learn.microsoft.com/azure/event-grid/secure-webhook-delivery", [], line="",
    body="[]", url="https://shop.example.com/hook?code=a%20secret+of%20the+test", change=("secret", "secrat"))

# Requests that others have published.
published("circleci", "https://circleci.com/docs/webhooks/ (Validate webhooks: table of test inputs)",
          [("circleci-signature", "v1=734cc62f32841568f45715aeb9f4d7891324e6d948e4c6c60c0621cdac48623a")],
          body="hello world", secret="secret", change=("hello", "hallo"))
published("box", "https://github.com/box/box-java-sdk doc/webhooks.md, and the tests of Box's SDKs, with SamplePrimaryKey",
          [("BOX-SIGNATURE-PRIMARY", "6TfeAW3A1PASkgboxxA5yqHNKOwFyMWuEXny/FPD5hI="), ("BOX-DELIVERY-TIMESTAMP", "2020-01-01T00:00:00-07:00")],
          body='{"type":"webhook_event","webhook":{"id":"1234567890"},"trigger":"FILE.UPLOADED","source":{"id":"1234567890","type":"file","name":"Test.txt"}}',
          secret="SamplePrimaryKey", at="2020-01-01T07:00:00Z", change=("Test", "Text"))
published("coinbase", "https://github.com/hook0/hook0, tests of its clients, whose format Coinbase uses",
          [("X-Hook0-Signature", "t=1800000000,h=x-event-id x-delivery-id,v1=19a6fb8f6581715b241a93af02a58611c3b0ac7b747a8d2a5b120ee418d0c347"),
           ("x-event-id", "evt-1"), ("x-delivery-id", "dlv-1")],
          body='{"event":"user.created"}', secret="a-subscription-secret", at="2027-01-15T08:00:00Z", change=("created", "deleted"))

print("[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n]")
