package record

import (
	"slices"
	"strings"

	"relay"
	"relay/signature"
	"relay/wire"
)

// candidate is a sender whose scheme may verify a request, with the secrets of this sender.
type candidate struct {
	sender *signature.Sender
	set    relay.OpenSecrets
}

// judgedBy lists the candidates for verifying a request. They have equal rank, and the best verdict wins.
// The argument provider is the name of the recognised sender; "" = none.
//
// The candidates are the recognised sender and the senders whose requests look the same, as far as the alias has
// secrets of theirs for this target. If it has none, the candidates are the custom definitions of the alias whose
// signature line the request has. If there are none, the only candidate is the recognised sender, without a
// secret. If no sender was recognised either, the candidates are the senders of secrets for the request's
// path. Of all these, only secrets with the longest matching path remain.
func judgedBy(provider, target string, secrets relay.OpenSecrets, request *signature.Request) []candidate {
	var recognised *signature.Sender // nil also if only a newer version knows the sender
	if provider != "" && provider != signature.CustomName {
		recognised = signature.Find(provider, request)
	}
	if recognised != nil {
		var list []candidate
		for _, name := range signature.Alike(recognised) {
			if set := secrets.For(name, target); len(set) > 0 {
				list = append(list, candidate{signature.Find(name, request), set})
			}
		}
		if len(list) > 0 {
			return list
		}
	}
	signed := definitionsOf(target, secrets, request)
	switch {
	case len(signed) > 0:
		return signed
	case recognised != nil:
		return []candidate{{recognised, nil}}
	}
	return candidatesOf(target, secrets, request, func(x *relay.OpenSecret, _ *signature.Sender) bool {
		return x.Provider == signature.CustomName && provider == signature.CustomName || x.Path != "" && provider == ""
	})
}

// definitionsOf lists, as candidates, the custom definitions of the alias whose signature line the
// request has.
func definitionsOf(target string, secrets relay.OpenSecrets, request *signature.Request) []candidate {
	return candidatesOf(target, secrets, request, func(x *relay.OpenSecret, p *signature.Sender) bool {
		return x.Provider == signature.CustomName && p.Schemes[0].HasSignature(request)
	})
}

// candidatesOf makes candidates of the secrets whose path begins the target and for which the function "may"
// returns true. Only those with the longest path become candidates, the oldest first.
func candidatesOf(target string, secrets relay.OpenSecrets, request *signature.Request, may func(*relay.OpenSecret, *signature.Sender) bool) (list []candidate) {
	longest := 0
	for i := range secrets {
		x := &secrets[i]
		if !strings.HasPrefix(target, x.Path) || len(x.Path) < longest {
			continue
		}
		p := senderOfSecret(x, request)
		if p == nil || !may(x, p) {
			continue
		}
		if len(x.Path) > longest {
			longest, list = len(x.Path), nil
		}
		if n := sameSender(list, x); n >= 0 {
			list[n].set = append(list[n].set, *x)
		} else {
			list = append(list, candidate{p, relay.OpenSecrets{*x}})
		}
	}
	return list
}

// sameSender returns the index of the candidate whose secrets have the same sender as x; -1 = none. Custom
// schemes are the same if the texts of their definitions are equal. Two texts with the same meaning become two
// candidates, and both are tried.
func sameSender(list []candidate, x *relay.OpenSecret) int {
	for i := range list {
		if have := &list[i].set[0]; have.Provider == x.Provider && have.Custom == x.Custom {
			return i
		}
	}
	return -1
}

// senderOfSecret returns the sender that signs with a secret; nil if only a later relayd knows the sender.
func senderOfSecret(x *relay.OpenSecret, request *signature.Request) *signature.Sender {
	if x.Provider != signature.CustomName {
		return signature.Find(x.Provider, request)
	}
	p, err := signature.ReadCustom([]byte(x.Custom))
	if err != nil {
		return nil
	}
	return p
}

// candidatesFor lists the candidates of a stored request. If provider is "", the sender is recognised from the
// request.
func candidatesFor(r *SignedRequest, provider, target string, secrets relay.OpenSecrets, request *signature.Request) []candidate {
	if provider != "" && provider != signature.CustomName {
		return []candidate{{signature.Find(provider, request), secrets.For(provider, target)}}
	}
	if recognised := senderOf(wire.Fields(r.Head), r.Body); recognised != nil && provider == "" {
		provider = recognised.Name
	}
	return judgedBy(provider, target, secrets, request)
}

// bestOf returns the candidate with the best verdict. Its sender is nil if there are no candidates.
func bestOf(list []candidate, r *SignedRequest, request *signature.Request) (best candidate) {
	if len(list) == 1 {
		return list[0]
	}
	verdict := ""
	for _, c := range list {
		s := c.sender.SchemeOf(request)
		if s == nil || r.Unread != "" {
			continue
		}
		open := openedOf(c.set)
		v := signature.Verify(s, open, request, r.ReceivedAt)
		if now := withSealed(&v, c.set, open).Verdict; verdict == "" || better(now, verdict) {
			best, verdict = c, now
		}
	}
	if best.sender == nil && len(list) > 0 {
		best = list[0]
	}
	return best
}

// verdicts lists the verdicts by rank, the lowest first.
var verdicts = []string{signature.Missing, signature.Invalid, Unchecked, signature.Expired, signature.Valid}

// better reports whether verdict a about a request has a higher rank than verdict b.
func better(a, b string) bool { return slices.Index(verdicts, a) > slices.Index(verdicts, b) }

// GivenSecret is a secret that a user gives for one call, and that is not stored.
type GivenSecret struct {
	Provider string // "" = the sender is recognised from the request
	Custom   string // definition if the provider is custom; "" = the definitions of the alias
	Value    string
}

// among returns the given secret as if it were stored for the alias: as a secret of the recognised sender, unless
// the user named a sender, and with each custom definition of the alias. If the user gave a definition, it is
// returned with that one only.
func (g *GivenSecret) among(recognised string, kept relay.OpenSecrets) (relay.OpenSecrets, error) {
	value := relay.NewSecretText(g.Value)
	if g.Custom != "" {
		if _, err := signature.ReadCustom([]byte(g.Custom)); err != nil {
			return nil, &relay.Error{
				Code: relay.CodeValidationFailed, Detail: "body.custom: " + err.Error(),
				Fields: []relay.FieldError{{Location: "body.custom", Message: err.Error()}},
			}
		}
		return relay.OpenSecrets{{SenderSecret: relay.SenderSecret{Provider: signature.CustomName, Custom: g.Custom}, Value: value}}, nil
	}
	var list relay.OpenSecrets
	if g.Provider == "" && recognised != "" {
		list = append(list, relay.OpenSecret{SenderSecret: relay.SenderSecret{Provider: recognised}, Value: value})
	}
	for _, x := range kept {
		if x.Provider == signature.CustomName {
			list = append(list, relay.OpenSecret{SenderSecret: relay.SenderSecret{Provider: x.Provider, Custom: x.Custom, Path: x.Path}, Value: value})
		}
	}
	if g.Provider == signature.CustomName && len(list) == 0 {
		return nil, wrongProvider(noDefinition, g.Provider)
	}
	return list, nil
}

// ExplainGiven verifies a request, as of its arrival, with a secret that is given for this call. Of the
// secrets of the alias (kept) it uses only the custom definitions. It returns the report and the sender whose
// scheme was used; "" = unknown.
func ExplainGiven(r *SignedRequest, target string, given *GivenSecret, kept relay.OpenSecrets) (report *signature.Report, sender string, err error) {
	g, recognised := *given, ""
	if g.Custom != "" && g.Provider == "" {
		g.Provider = signature.CustomName
	}
	switch {
	case g.Custom != "" && g.Provider != signature.CustomName:
		return nil, "", wrongProvider("a definition goes with the provider custom alone", g.Provider)
	case g.Provider != "" && g.Provider != signature.CustomName:
		report, err = ExplainSignature(r, g.Provider, []signature.Secret{{Value: g.Value}})
		return report, g.Provider, err
	}
	if p := senderOf(wire.Fields(r.Head), r.Body); p != nil {
		recognised = p.Name
	}
	list, err := g.among(recognised, kept)
	if err != nil {
		return nil, "", err
	}
	request := requestOf(r)
	candidates := candidatesFor(r, g.Provider, target, list, request)
	if recognised != "" && g.Provider == "" { // the user did not name the sender of the secret, so the definitions are tried too
		candidates = append(candidates, definitionsOf(target, list, request)...)
	}
	c := bestOf(candidates, r, request)
	if c.sender == nil {
		report, err = ExplainSignature(r, "", nil)
		return report, "", err
	}
	return explainBy(c.sender, r, request, openedOf(c.set), nil), c.sender.Name, nil
}

// SecretFor returns the secret with which to sign a request without a known sender: the newest of the alias'
// secrets that verify it; nil = none. The argument provider is "", or custom if the user chose
// custom. Sign must be set for each of the secrets.
func SecretFor(r *SignedRequest, provider, target string, secrets relay.OpenSecrets) *relay.OpenSecret {
	var found *relay.OpenSecret
	for _, c := range judgedBy(provider, target, secrets, requestOf(r)) {
		for i := range c.set {
			if found == nil || !c.set[i].CreatedAt.Before(found.CreatedAt) {
				found = &c.set[i]
			}
		}
	}
	return found
}

// JudgedByCustom reports whether a request with a recognised sender is nevertheless verified by a custom
// definition of the alias.
func JudgedByCustom(r *SignedRequest, provider, target string, secrets relay.OpenSecrets) bool {
	list := judgedBy(provider, target, secrets, requestOf(r))
	return len(list) > 0 && list[0].sender != nil && list[0].sender.Name == signature.CustomName
}
