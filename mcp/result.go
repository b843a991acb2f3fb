package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"relay"
	"relay/cli"
	"relay/record"
)

// failed is the result for an agent of a call that failed.
type failed struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Next   string `json:"next"`
}

// failure returns the result of a call that failed. The agent sees its text, and can correct the call.
func failure(err error) *sdk.CallToolResult {
	f := failed{Code: relay.CodeInternal, Detail: record.SafeText(err.Error())}
	if e, ok := errors.AsType[*cli.Error](err); ok {
		f.Code, f.Next = e.Code, record.SafeText(e.Hint)
		if f.Code == "" {
			f.Code = "unreachable"
		}
	} else if e := relay.AsError(err); e.Code != relay.CodeInternal {
		f.Code, f.Detail = e.Code, record.SafeText(e.Detail)
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		f.Code, f.Detail = "canceled", "the call was canceled before it ended; a replay that has begun goes on"
	}
	if next := nextSteps[f.Code]; next != "" || f.Next == "" {
		f.Next = cmp.Or(next, "look at the present state with list_aliases or show_event, and decide by the detail")
	}
	text, _ := json.Marshal(f)
	return &sdk.CallToolResult{IsError: true, StructuredContent: json.RawMessage(text), Content: []sdk.Content{&sdk.TextContent{Text: string(text)}}}
}

// nextSteps are the advice for an agent about an error, by its code.
var nextSteps = map[string]string{
	relay.CodeNotFound:           "use list_aliases and list_events to find the names and ids that you may see",
	relay.CodeValidationFailed:   "correct the argument that the detail names, and call again",
	relay.CodeUnauthorized:       "the login ended: ask the person to run relay login, or to make a new token",
	relay.CodeForbidden:          "the token does not allow this: ask the person for one with the scope that the detail names",
	relay.CodeRateLimited:        "wait some seconds, and call again",
	relay.CodeOverloaded:         "wait some seconds, and call again with smaller bounds",
	relay.CodeStoreUnavailable:   "wait some seconds, and call again",
	relay.CodeStopping:           "the relay restarts: wait some seconds, and call again",
	relay.CodeEventNotReplayable: "this event cannot be replayed; show_event has what is stored of it",
	"unreachable":                "the relay cannot be reached: ask the person whether it runs",
	codeBound:                    "ask for less: the detail names the bound",
}

// codeBound is the code of an error for a request that exceeds the bounds of a tool.
const codeBound = "too-large"

func bound(format string, args ...any) error { return relay.Errorf(codeBound, format, args...) }

func invalid(name, format string, args ...any) error {
	e := relay.Errorf(relay.CodeValidationFailed, name+": "+format, args...)
	return e
}

// escaped returns a value as JSON in which each text is escaped as for terminals, except for its line
// ends and tabs.
func escaped(v any) (json.RawMessage, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Grow(len(plain))
	for rest := plain; len(rest) > 0; {
		at := bytes.IndexByte(rest, '"')
		if at < 0 {
			out.Write(rest)
			break
		}
		out.Write(rest[:at])
		end := at + 1
		for rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		if err := escapeText(&out, rest[at:end+1]); err != nil {
			return nil, err
		}
		rest = rest[end+1:]
	}
	return out.Bytes(), nil
}

// escapeText writes a JSON string with its text escaped.
func escapeText(out *bytes.Buffer, quoted []byte) error {
	text := string(quoted[1 : len(quoted)-1])
	if strings.IndexByte(text, '\\') >= 0 {
		if err := json.Unmarshal(quoted, &text); err != nil {
			return err
		}
	}
	if record.IsSafeText(text) {
		out.Write(quoted)
		return nil
	}
	out.WriteByte('"')
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		for i, piece := range strings.Split(line, "\t") {
			if i > 0 {
				out.WriteString(`\t`)
			}
			for _, c := range []byte(record.SafeText(piece)) {
				if c == '"' || c == '\\' {
					out.WriteByte('\\')
				}
				out.WriteByte(c)
			}
		}
		if len(line) < len(text) {
			out.WriteString(`\n`)
		}
		text = rest
	}
	out.WriteByte('"')
	return nil
}
