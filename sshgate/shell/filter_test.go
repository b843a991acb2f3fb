package shell

import (
	"fmt"
	"strings"
	"testing"

	"relay"
)

// The commands about events take the filters by flags and as typed words.
func TestFiltersOfCommands(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]relay.Filter{
		`events a`:              {Alias: "a"},
		`events a status:5xx`:   {Alias: "a", Status: "5xx"},
		`events a --status 5xx`: {Alias: "a", Status: "5xx"},
		`events a -n 5 --type=invoice.* data.id=x "Exact text" 'other text' word`: {
			Alias: "a", Type: "invoice.*", JSON: []relay.FieldFilter{{Path: []string{"data", "id"}, Value: "x"}},
			Texts: []relay.TextFilter{{Text: "Exact text", Exact: true}, {Text: "other text", Exact: true}, {Text: "word"}},
		},
		`events --json a --json=data.id=x`:   {Alias: "a", JSON: []relay.FieldFilter{{Path: []string{"data", "id"}, Value: "x"}}},
		`wait a --path "/a b" --method post`: {Alias: "a", Path: "/a b", Method: "POST"},
		`events a path:"/a b"`:               {Alias: "a", Path: "/a b"},
	} {
		got, err := filterOfLine(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if got, want := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for line, want := range map[string]string{
		`events a --stauts 5xx`:            "did you mean --status?",
		`events a stauts:5xx`:              "did you mean status?",
		`events a --status 5x`:             "did you mean 5xx?",
		`events a --status 404 status:500`: "more than once",
		`events a alias:b`:                 "the alias is given twice",
		`events a --alias b`:               "has no flag",
	} {
		if _, err := filterOfLine(line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

func filterOfLine(line string) (relay.Filter, error) {
	words, err := splitWords(line)
	if err != nil {
		return relay.Filter{}, err
	}
	c, err := find(words[0].text)
	if err != nil {
		return relay.Filter{}, err
	}
	k := &call{s: &Shell{Config: &Config{}}, flags: map[string]string{}, filterFlags: map[string][]string{}}
	if err := k.parse(c, words[1:]); err != nil {
		return relay.Filter{}, err
	}
	return k.filter(k.words[0])
}
