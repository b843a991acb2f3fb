package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"relay"
)

// TestErrorsOfTheLibrary: an error that the MCP SDK makes itself gets a code. Before the tool has run, the code
// says that the arguments are invalid; afterwards, that the tool has failed. Errors of the protocol stay as
// they are.
func TestErrorsOfTheLibrary(t *testing.T) {
	t.Parallel()
	refused := func() *sdk.CallToolResult {
		r := &sdk.CallToolResult{}
		r.SetError(errors.New("it is no number"))
		return r
	}
	for name, c := range map[string]struct {
		ran    bool
		result *sdk.CallToolResult
		err    error
		code   string // "" = the error is not converted
	}{
		"arguments that do not fit":   {false, refused(), nil, relay.CodeValidationFailed},
		"an unknown tool":             {false, nil, errors.New("unknown tool"), ""},
		"a result that does not fit":  {true, nil, errors.New("validating tool output"), relay.CodeInternal},
		"an error without a form":     {true, refused(), nil, relay.CodeInternal},
		"an error of a tool":          {true, failure(relay.ErrNotFound), nil, relay.CodeNotFound},
		"an error before it could be": {false, failure(relay.ErrNotFound), nil, relay.CodeNotFound},
	} {
		result, err := withCodes(func(ctx context.Context, _ string, _ sdk.Request) (sdk.Result, error) {
			*ctx.Value(ranKey{}).(*bool) = c.ran
			if c.result == nil {
				return nil, c.err
			}
			return c.result, c.err
		})(t.Context(), "tools/call", nil)
		if c.code == "" {
			if err == nil {
				t.Errorf("%s: %+v", name, result)
			}
			continue
		}
		var f failed
		if r, ok := result.(*sdk.CallToolResult); err != nil || !ok || json.Unmarshal(r.StructuredContent.(json.RawMessage), &f) != nil || f.Code != c.code || f.Next == "" {
			t.Errorf("%s: %+v, %v, want %s", name, f, err, c.code)
		}
	}
}
