package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"relay/client"
	"relay/record"
)

func (p *program) whoami() *cobra.Command {
	c := &cobra.Command{Use: "whoami", Short: whoamiShort, Example: whoamiExample, Args: noArgs}
	asJSON := c.Flags().Bool("json", false, flagJSON)
	c.RunE = func(c *cobra.Command, _ []string) error {
		api, err := p.api(c.Context())
		if err != nil {
			return err
		}
		defer api.Close()
		var answer bytes.Buffer
		if err := api.Call(c.Context(), http.MethodGet, "/me", nil, &answer); err != nil {
			return err
		}
		return p.showMe(answer.Bytes(), api.Endpoint(), *asJSON || p.output == outputJSON)
	}
	return c
}

// showMe prints the account and how the relay was reached; JSON is the relay's answer with
// the connection added.
func (p *program) showMe(answer []byte, endpoint client.Endpoint, asJSON bool) error {
	w := p.printer()
	if asJSON {
		fields := map[string]any{}
		if err := json.Unmarshal(answer, &fields); err != nil {
			return fmt.Errorf("read the relay's answer: %w", err)
		}
		fields["connection"], fields["relay"] = endpoint.Name, endpoint.Addr
		return w.object(fields)
	}
	var m record.Me
	if err := json.Unmarshal(answer, &m); err != nil {
		return fmt.Errorf("read the relay's answer: %w", err)
	}
	return errors.Join(w.line(me(m)), w.line(endpointText(endpoint)))
}
