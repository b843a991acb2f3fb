package page

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"time"

	"github.com/a-h/templ"

	"relay"
)

// OnceField is the name of a form field that identifies one rendering of the form: by a random text, or for a
// replay by the number of attempts of the event. A form that is submitted twice, by a double click or a reload,
// acts once; the second submission gets the response to the first.
const OnceField = "once"

// NewOnce returns the value of OnceField for one rendering of a form.
func NewOnce() string { return rand.Text() }

const (
	// oncePatience is the longest time for which a repeated form waits for the end of the first one.
	oncePatience = ReplayWait + 5*time.Second
	oncePause    = 50 * time.Millisecond // first pause between two calls of BeginIdempotent, each of which writes to the store; each pause is twice as long as the one before
	oncePauseMax = time.Second
	maxOnceHTML  = 64 << 10 // largest page in bytes that is stored; for a larger one, a second submission gets a redirect to the page of the form
)

// formAnswer is the stored response to a form that has been handled. A second submission of the same
// form gets it again.
type formAnswer struct {
	Location string `json:"location,omitempty"` // of a redirect
	HTML     []byte `json:"html,omitempty"`
	Secret   string `json:"secret,omitempty"` // the secret that the form made, see MadeByForm
}

type madeKey struct{}

// MadeByForm returns a pointer to the secret that a form makes. On the first submission it points to
// "", and the handler stores the secret there. On a repeated submission it points to that secret, and
// the handler shows it again.
func MadeByForm(r *http.Request) *string {
	if made, ok := r.Context().Value(madeKey{}).(*string); ok {
		return made
	}
	return new(string)
}

// Once returns a handler that handles each rendering of a form once. The handling continues if the browser
// disconnects, because a second click ends the first request.
func (p *Pages) Once(handle SignedInHandler) SignedInHandler {
	return func(w http.ResponseWriter, r *http.Request, who relay.Actor) (templ.Component, error) {
		if r.Method != http.MethodPost || !r.Form.Has(OnceField) {
			return handle(w, r, who)
		}
		// The text includes all fields. So a form acts again if the user goes back and changes a field.
		text := r.Form.Encode()
		if Partial(r) {
			// A form that the script sends gets a different answer, and therefore has a different key.
			text += " partial"
		}
		// The key is a hash, because the store must not contain the text: the text decrypts the answer, which
		// may contain the secret of a share or token.
		key := "form " + hexOf("key", text+" "+r.URL.Path)
		status, sealed, err := p.begin(r.Context(), who, key, r.Pattern)
		switch {
		case err != nil && relay.AsError(err).Code == relay.CodeConflict:
			// The first submission is still being handled after oncePatience.
			return SeeOther(w, r, nil, p.pageAbove(r.URL.Path))
		case err != nil:
			return nil, err
		case status != 0:
			answer, ok := openAnswer(text, sealed)
			if ok && answer.Secret != "" {
				return handle(w, r.WithContext(context.WithValue(r.Context(), madeKey{}, &answer.Secret)), who)
			}
			return p.answerAgain(w, r, answer)
		}
		made := ""
		ctx := context.WithValue(context.WithoutCancel(r.Context()), madeKey{}, &made)
		status = 0
		var kept []byte
		defer func() {
			if err := p.Accounts.EndIdempotent(ctx, who, key, status, kept); err != nil {
				p.Log.Warn("cannot store the answer to a form", "path", r.Pattern, "err", err)
			}
		}()
		to := &redirectWatch{ResponseWriter: w}
		body, err := handle(to, r.WithContext(ctx), who)
		refusal, is := body.(WithStatus)
		failed := err != nil || is && refusal.Status >= http.StatusBadRequest
		if failed && made == "" && !relay.MayBeDone(err) {
			// The form has not acted, so it may be sent again.
			return body, err
		}
		// The form has acted, even if its page failed.
		status = http.StatusOK
		answer := formAnswer{Location: to.location}
		if len(r.Form.Get(OnceField)) >= len(NewOnce()) {
			// The secret is stored only if OnceField has a random value. Without one, the text that decrypts
			// the secret could be guessed.
			answer.Secret = made
		}
		if body != nil && made == "" {
			var html bytes.Buffer
			if err := body.Render(ctx, &html); err != nil {
				return nil, err
			}
			body, answer.HTML = templ.Raw(html.String()), html.Bytes()
		}
		kept = answer.seal(text)
		// If the page failed although the form has made a secret, a second submission of the form shows that
		// secret.
		return body, err
	}
}

// begin calls BeginIdempotent, and waits while the first submission with the key is still being
// handled.
func (p *Pages) begin(ctx context.Context, who relay.Actor, key, target string) (status int, sealed []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, oncePatience)
	defer cancel()
	for pause := oncePause; ; pause = min(2*pause, oncePauseMax) {
		status, sealed, err = p.Accounts.BeginIdempotent(ctx, who, key, target)
		if err == nil || relay.AsError(err).Code != relay.CodeConflict {
			return status, sealed, err
		}
		select {
		case <-ctx.Done():
			return 0, nil, err
		case <-time.After(pause):
		}
	}
}

// answerAgain sends the response to the first submission again.
func (p *Pages) answerAgain(w http.ResponseWriter, r *http.Request, answer formAnswer) (templ.Component, error) {
	switch {
	case answer.Location != "":
		return SeeOther(w, r, nil, answer.Location)
	case len(answer.HTML) > 0:
		return templ.Raw(string(answer.HTML)), nil
	}
	return SeeOther(w, r, nil, p.pageAbove(r.URL.Path))
}

// seal encrypts a response with a key from the text of its form; nil = it is too large to be stored.
func (a formAnswer) seal(text string) []byte {
	if len(a.HTML) > maxOnceHTML {
		return nil
	}
	plain, err := json.Marshal(a)
	if err != nil {
		return nil
	}
	return sealerOf(text).Seal(nil, nil, plain, nil)
}

// openAnswer decrypts the result of seal.
func openAnswer(text string, sealed []byte) (a formAnswer, ok bool) {
	plain, err := sealerOf(text).Open(nil, nil, sealed, nil)
	return a, err == nil && json.Unmarshal(plain, &a) == nil
}

func sealerOf(text string) cipher.AEAD {
	key := sha256.Sum256([]byte("answer " + text))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		// The key always has 32 bytes, so NewCipher returns no error.
		panic(err)
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err)
	}
	return sealer
}

func hexOf(purpose, text string) string {
	sum := sha256.Sum256([]byte(purpose + " " + text))
	return hex.EncodeToString(sum[:])
}

// redirectWatch stores the address to which a handler redirects.
type redirectWatch struct {
	http.ResponseWriter
	location string
}

// WriteHeader stores the address of a redirect.
func (w *redirectWatch) WriteHeader(status int) {
	if status == http.StatusSeeOther {
		w.location = w.Header().Get("Location")
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap returns the inner writer, for http.ResponseController.
func (w *redirectWatch) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// ReplayWait is the time for which the answer to a form that was sent without the script waits for the end of
// the replay. A form that the script sends does not wait, because a live update follows.
const ReplayWait = 5 * time.Second
