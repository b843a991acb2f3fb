package mask

import (
	"bytes"
	"slices"
	"strings"
)

// secretParts are parts of names, in lower case and without separators. If the name of a field or header line
// contains one of them, its value is a secret or a signature.
var secretParts = [][]byte{
	[]byte("authorization"), []byte("cookie"), []byte("signature"), []byte("secret"), []byte("token"), []byte("hmac"), []byte("apikey"),
	[]byte("passw"), []byte("passphrase"), []byte("passcode"), []byte("transmissionsig"), []byte("xauth"), []byte("accesskey"),
	[]byte("privatekey"), []byte("credential"), []byte("jwt"), []byte("kennwort"), []byte("clientstate"),
}

// secretFields are whole names of secret fields that are too short or too common to be searched for
// within names.
var secretFields = []string{"auth", "pwd", "pass", "pin", "otp", "key", "sig", "sid", "session", "cvc", "cvv", "ssn"}

// secretEnds are last words in the names of secret fields.
var secretEnds = []string{"key", "sig", "auth", "pwd", "pass", "pin", "otp", "cvc", "cvv", "ssn", "csrf", "xsrf", "code"}

// openKeys are words before "key" in the names of keys that are not secret.
var openKeys = []string{
	"public", "primary", "foreign", "partition", "sort", "object", "idempotency", "lookup", "cache", "translation", "row", "group", "dedup",
	"deduplication", "issue", "project",
}

// codeKinds are words before "code" in the names of codes with which a user logs in or confirms an
// action.
var codeKinds = []string{
	"auth", "validation", "verification", "device", "user", "security", "confirmation", "otp", "access", "login", "reset", "recovery",
	"backup", "invite", "invitation", "pass", "mfa", "sms", "activation", "time",
}

// secretWords are words in the names of secret header lines.
var secretWords = []string{"key", "sig", "auth", "hash", "session", "sid", "pwd", "pass", "otp", "pin", "csrf", "xsrf"}

// secretHeaders are names of header lines that may contain the host of the alias, which could identify its owner,
// or a signature although the name does not show that.
var secretHeaders = []string{
	"host", "xforwardedhost", "xoriginalhost", "forwarded", "origin", "referer", "xtrellowebhook", "plaidverification",
}

// ownerHeaders are the secretHeaders that may contain the host of the alias.
var ownerHeaders = secretHeaders[:6]

// addressWords are words in the names of fields with a secret address: every client that knows the
// address may confirm, answer or write.
var addressWords = []string{
	"subscribe", "unsubscribe", "validation", "validate", "confirm", "confirmation", "verify", "verification", "response", "reset", "invite",
	"invitation", "magic", "presigned", "signed", "upload", "webhook", "hook", "resume", "activation", "activate", "login", "optout",
}

// maxName is the number of bytes to which names are cut before they are compared.
const maxName = 128

// plainName returns a name in lower case without separators, cut to maxName bytes: api_key, Api-Key
// and apiKey give the same name.
func plainName(name []byte, to *[maxName]byte) []byte {
	out := to[:0]
	for _, c := range name[:min(len(name), maxName)] {
		switch {
		case c == '-' || c == '_' || c == '.' || c == ' ':
		case c >= 'A' && c <= 'Z':
			out = append(out, c+'a'-'A')
		default:
			out = append(out, c)
		}
	}
	return out
}

// words splits a name at characters other than letters and digits, and where a capital begins a word.
func words(name []byte) []string {
	var list []string
	name = name[:min(len(name), maxName)]
	isUpper := func(i int) bool { return i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	isLower := func(i int) bool { return i < len(name) && name[i] >= 'a' && name[i] <= 'z' }
	from := 0
	end := func(at int) {
		if at > from {
			list = append(list, strings.ToLower(string(name[from:at])))
		}
		from = at
	}
	for i, c := range name {
		switch {
		case !isUpper(i) && !isLower(i) && (c < '0' || c > '9') && c < 0x80:
			end(i)
			from = i + 1
		case isUpper(i) && i > 0 && (!isUpper(i-1) || isLower(i+1)): // such as the K in apiKey and in APIKey
			end(i)
		}
	}
	end(len(name))
	return list
}

// strongName reports whether a name clearly shows that its value is a secret.
func strongName(name []byte) bool {
	var space [maxName]byte
	plain := plainName(name, &space)
	return slices.ContainsFunc(secretParts, func(part []byte) bool { return bytes.Contains(plain, part) })
}

// secretField reports whether a query, form or JSON field is treated as a secret because of its name.
// For a name such as card[cvc] or user.pass it also checks the last part.
func secretField(name []byte) bool {
	if len(name) < 3 || len(name) > maxName {
		return len(name) > maxName && strongName(name)
	}
	var space [maxName]byte
	plain := plainName(name, &space)
	if len(plain) >= shortestPart && slices.ContainsFunc(secretParts, func(part []byte) bool { return bytes.Contains(plain, part) }) {
		return true
	}
	whole := func(plain []byte) bool {
		return len(plain) <= longestField && slices.ContainsFunc(secretFields, func(field string) bool { return string(plain) == field })
	}
	if whole(plain) {
		return true
	}
	if last := bytes.TrimRight(name, "[]"); bytes.IndexByte(last, '[') >= 0 || bytes.IndexByte(last, '.') >= 0 {
		if whole(plainName(last[bytes.LastIndexAny(last, "[.")+1:], &space)) {
			return true
		}
		plain = plainName(last, &space)
	}
	return slices.ContainsFunc(secretEnds, func(end string) bool { return len(plain) > len(end) && string(plain[len(plain)-len(end):]) == end }) && endsAsSecret(name)
}

const shortestPart, longestField = len("jwt"), len("session")

// endsAsSecret reports whether the last word of a name is one of secretEnds.
func endsAsSecret(name []byte) bool {
	list := words(name)
	if len(list) < 2 {
		return false
	}
	last, before := list[len(list)-1], list[len(list)-2]
	switch last {
	case "key":
		return !slices.Contains(openKeys, before)
	case "code":
		return slices.Contains(codeKinds, before)
	}
	return slices.Contains(secretEnds, last)
}

// secretAddress reports whether the name of a field shows that its value is a secret address: every
// client that knows the address may use it.
func secretAddress(name []byte) bool {
	name = name[:min(len(name), maxName)]
	if len(name) < 6 || !endsAsAddress(name) {
		return false
	}
	list := words(name)
	return slices.ContainsFunc(list[:max(0, len(list)-1)], func(word string) bool { return slices.Contains(addressWords, word) })
}

func endsAsAddress(name []byte) bool {
	for _, end := range []string{"url", "uri", "link", "href"} {
		if len(name) >= len(end) && strings.EqualFold(string(name[len(name)-len(end):]), end) {
			return true
		}
	}
	return false
}

// secretHeader reports whether the name of a header line shows that its value is a secret, or may contain the host
// of the alias.
func secretHeader(name string) bool {
	var space [maxName]byte
	return strongName([]byte(name)) || slices.Contains(secretHeaders, string(plainName([]byte(name), &space))) ||
		slices.ContainsFunc(words([]byte(name)), func(word string) bool { return slices.Contains(secretWords, word) })
}

// OwnerHeader reports whether a header line with this name may contain the host of the alias, which could identify
// its owner.
func OwnerHeader(name string) bool {
	var space [maxName]byte
	return slices.Contains(ownerHeaders, string(plainName([]byte(name), &space)))
}

// looksLikeCode reports whether the value of a field named code looks like a login code, and not like
// an error number or a country code.
func looksLikeCode(value []byte) bool {
	var letters, digits bool
	for _, c := range value {
		switch {
		case c >= '0' && c <= '9':
			digits = true
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			letters = true
		case c <= ' ' || c == '"' || c == '<':
			return false
		}
	}
	return letters && digits && len(value) >= 16
}
