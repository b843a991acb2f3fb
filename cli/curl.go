package cli

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pasted is a request that was read from a cURL command or a HAR file. It is sent to an alias instead of its
// original address, so the relay writes the Host line and the lines about framing and connection.
type pasted struct {
	method, path string
	headers      [][]string
	remove       []string
	body         []byte // nil = none
}

// line adds a header line, except for a line that the relay writes.
func (p *pasted) line(name, value string) error {
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch strings.ToLower(name) {
	case "host", "content-length", "transfer-encoding", "connection":
		return nil
	case "":
		return errors.New("it has a header line without a name")
	}
	p.headers = append(p.headers, []string{name, value})
	return nil
}

func (p *pasted) has(name string) bool {
	return slices.ContainsFunc(p.headers, func(h []string) bool { return strings.EqualFold(h[0], name) })
}

// target stores the path and query of an address, as they are written.
func (p *pasted) target(address string) error {
	if _, rest, ok := strings.Cut(address, "://"); ok {
		if scheme := strings.ToLower(strings.TrimSuffix(address, "://"+rest)); scheme != "http" && scheme != "https" {
			return fmt.Errorf("its address is not one of http or https, but of %q", scheme)
		}
		address = rest
	}
	at := strings.IndexAny(address, "/?#")
	if at < 0 {
		at = len(address)
	}
	if at == 0 {
		return errors.New("its address has no host")
	}
	p.path, _, _ = strings.Cut(address[at:], "#")
	if !strings.HasPrefix(p.path, "/") {
		p.path = "/" + p.path
	}
	return nil
}

// curlShort maps the short options of curl that Relay understands to their long names.
var curlShort = map[byte]string{
	'X': "request", 'H': "header", 'd': "data", 'A': "user-agent", 'e': "referer", 'b': "cookie", 'u': "user", 'G': "get", 'I': "head",
	'o': "output", 'm': "max-time", 'w': "write-out", 'x': "proxy",
	's': "silent", 'S': "show-error", 'k': "insecure", 'L': "location", 'i': "include", 'v': "verbose", 'f': "fail", 'N': "no-buffer",
	'g': "globoff", '#': "progress-bar", '0': "http1.0", '4': "ipv4", '6': "ipv6",
	'F': "form", 'T': "upload-file", 'K': "config", 'n': "netrc", 'E': "cert", 'r': "range", 'z': "time-cond",
}

// curlIgnored lists the options of curl that do not change the request. The value tells whether the option
// takes a value.
var curlIgnored = map[string]bool{
	"silent": false, "show-error": false, "insecure": false, "location": false, "include": false, "verbose": false, "fail": false,
	"fail-with-body": false, "no-buffer": false, "progress-bar": false, "compressed": false, "path-as-is": false, "http1.1": false,
	"http2": false, "tlsv1.2": false, "tlsv1.3": false, "ipv4": false, "ipv6": false, "no-keepalive": false, "no-progress-meter": false,
	"output": true, "max-time": true, "connect-timeout": true, "write-out": true, "retry": true, "cacert": true, "proxy": true,
	"resolve": true, "connect-to": true, "max-redirs": true, "limit-rate": true,
}

// curlCommand is the state while a cURL command is parsed.
type curlCommand struct {
	pasted
	address string
	exact   string // value of --request-target
	data    []string
	json    bool
	get     bool
	head    bool
	globs   bool // --globoff: brackets of the address are literal
}

// readCURL returns the request that a cURL command would send. Files that the command names are not read. An
// unsupported option is an error with the name of the option.
func readCURL(command string) (*pasted, error) {
	words, err := shellWords(strings.TrimPrefix(strings.TrimSpace(command), "$ "))
	if err != nil {
		return nil, err
	}
	if len(words) == 0 || words[0] != "curl" && !strings.HasSuffix(words[0], "/curl") {
		return nil, errors.New("it does not begin with curl")
	}
	c := &curlCommand{}
	words = words[1:]
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		if word == "--" {
			continue
		}
		if len(word) < 2 || word[0] != '-' {
			if err := c.option("url", word); err != nil {
				return nil, err
			}
			continue
		}
		if words, err = c.options(word, words); err != nil {
			return nil, err
		}
	}
	return c.finish()
}

// options applies the options in word: one long option, or one or more short ones. If an option has its value in
// the next word of the command, that is the first element of words. The function returns words without the
// values that it has used.
func (c *curlCommand) options(word string, words []string) ([]string, error) {
	names, attached := []string{}, ""
	if long, ok := strings.CutPrefix(word, "--"); ok {
		names = append(names, long)
	} else {
		for i := 1; i < len(word); i++ {
			name := curlShort[word[i]]
			if name == "" {
				return nil, unknownOption("-" + word[i:i+1])
			}
			names = append(names, name)
			if curlTakes(name) {
				attached = word[i+1:]
				break
			}
		}
	}
	for _, name := range names {
		value := ""
		if curlTakes(name) {
			switch {
			case attached != "":
				value = attached
			case len(words) == 0:
				return nil, fmt.Errorf("its option --%s has no value", name)
			default:
				value, words = words[0], words[1:]
			}
		}
		if err := c.option(name, value); err != nil {
			return nil, err
		}
	}
	return words, nil
}

func unknownOption(name string) error {
	return fmt.Errorf("its option %s cannot be honoured here; leave it out, or write the request with -X, -H and --data", name)
}

// curlTakes reports whether an option takes a value.
func curlTakes(name string) bool {
	takes, ignored := curlIgnored[name]
	return takes || !ignored && !slices.Contains([]string{"get", "head", "globoff", "http1.0", "netrc"}, name)
}

// option applies one option.
func (c *curlCommand) option(name, value string) error {
	if _, ignored := curlIgnored[name]; ignored {
		return nil
	}
	switch name {
	case "url":
		if c.address != "" {
			return errors.New("it has several addresses; a call sends one request")
		}
		c.address = value
	case "request":
		c.method = value
	case "request-target":
		c.exact = value
	case "get":
		c.get = true
	case "head":
		c.head = true
	case "globoff":
		c.globs = true
	case "header":
		return c.header(value)
	case "user-agent":
		return c.line("User-Agent", value)
	case "referer":
		return c.line("Referer", strings.TrimSuffix(value, ";auto"))
	case "cookie":
		if !strings.Contains(value, "=") {
			return errors.New("its option --cookie names a file, and files are not read")
		}
		return c.line("Cookie", value)
	case "user":
		if !strings.Contains(value, ":") {
			return errors.New("its option --user has no password, which curl would ask for")
		}
		return c.line("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(value)))
	case "data", "data-ascii", "data-binary", "data-raw", "data-urlencode", "json":
		return c.addData(name, value)
	default:
		return unknownOption("--" + name)
	}
	return nil
}

// header adds the header line of -H: "Name: value", "Name;" for an empty value, or "Name:" to send no such
// line.
func (c *curlCommand) header(value string) error {
	if strings.HasPrefix(value, "@") {
		return errors.New("its option --header names a file, and files are not read")
	}
	name, text, ok := strings.Cut(value, ":")
	switch {
	case !ok && strings.HasSuffix(value, ";"):
		return c.line(strings.TrimSuffix(value, ";"), "")
	case !ok:
		return fmt.Errorf("its option --header is no 'Name: value' but %.40q", value)
	case strings.TrimSpace(text) == "":
		if strings.EqualFold(strings.TrimSpace(name), "content-type") {
			c.remove = append(c.remove, "Content-Type")
		}
		return nil
	}
	return c.line(name, text)
}

func (c *curlCommand) addData(name, value string) error {
	if name != "data-raw" && name != "data-urlencode" && strings.HasPrefix(value, "@") {
		return fmt.Errorf("its option --%s names a file, and files are not read; use --data %s beside the other flags", name, value)
	}
	if name == "data-urlencode" {
		before, content, ok := strings.Cut(value, "=")
		switch {
		case !ok && strings.Contains(value, "@"):
			return errors.New("its option --data-urlencode names a file, and files are not read")
		case !ok:
			before, content = "", value
		case before != "":
			before += "="
		}
		value = before + strings.ReplaceAll(url.QueryEscape(content), "+", "%20")
	}
	c.json = c.json || name == "json"
	c.data = append(c.data, value)
	return nil
}

// finish makes the request from the options.
func (c *curlCommand) finish() (*pasted, error) {
	if c.address == "" {
		return nil, errors.New("it has no address")
	}
	if !c.globs && strings.ContainsAny(c.address, "[]{}") {
		return nil, errors.New("its address has brackets, by which curl sends several requests; add --globoff to take them as they are")
	}
	if err := c.target(c.address); err != nil {
		return nil, err
	}
	joint := "&"
	if c.json {
		joint = ""
	}
	data := strings.Join(c.data, joint)
	switch {
	case len(c.data) > 0 && c.get:
		mark := "?"
		if strings.Contains(c.path, "?") {
			mark = "&"
		}
		c.path += mark + data
	case len(c.data) > 0:
		c.body = []byte(data)
		c.typed()
	}
	if c.exact != "" {
		c.path = c.exact
	}
	if c.method == "" {
		c.method = http.MethodGet
		if c.body != nil {
			c.method = http.MethodPost
		}
		if c.head {
			c.method = http.MethodHead
		}
	}
	return &c.pasted, nil
}

// typed adds the header lines that curl adds for a body, such as Content-Type.
func (c *curlCommand) typed() {
	media := "application/x-www-form-urlencoded"
	if c.json {
		if media = "application/json"; !c.has("Accept") {
			_ = c.line("Accept", media)
		}
	}
	if !c.has("Content-Type") && len(c.remove) == 0 {
		_ = c.line("Content-Type", media)
	}
}

// harFile holds the used parts of a HAR file (HTTP Archive 1.2).
type harFile struct {
	Log struct {
		Entries []struct {
			Request struct {
				Method  string `json:"method"`
				URL     string `json:"url"`
				Headers []struct {
					Name  string `json:"name"`
					Value string `json:"value"`
				} `json:"headers"`
				PostData *struct {
					MimeType string  `json:"mimeType"`
					Text     *string `json:"text"`
					Encoding string  `json:"encoding"`
					Params   []struct {
						Name     string `json:"name"`
						Value    string `json:"value"`
						FileName string `json:"fileName"`
					} `json:"params"`
				} `json:"postData"`
			} `json:"request"`
		} `json:"entries"`
	} `json:"log"`
}

// harName splits FILE#N; n is 0 if the value has no number.
func harName(value string) (file string, n int) {
	at := strings.LastIndexByte(value, '#')
	if at < 0 {
		return value, 0
	}
	number, err := strconv.Atoi(value[at+1:])
	if err != nil || number < 1 {
		return value, 0
	}
	return value[:at], number
}

// readHAR returns request n of a HAR file, counted from 1; 0 = the only request.
func readHAR(content []byte, n int) (*pasted, error) {
	var har harFile
	if err := json.Unmarshal([]byte(strings.TrimPrefix(string(content), "\ufeff")), &har); err != nil {
		return nil, errors.New("it is not a HAR file: no JSON, or of another form")
	}
	count := len(har.Log.Entries)
	switch {
	case count == 0:
		return nil, errors.New("it has no requests")
	case n == 0 && count > 1:
		return nil, fmt.Errorf("it has %d requests; name one as FILE#N, from #1 to #%d", count, count)
	case n > count:
		return nil, fmt.Errorf("it has %d requests, and no #%d", count, n)
	}
	r := har.Log.Entries[max(n, 1)-1].Request
	p := &pasted{method: r.Method}
	if err := p.target(r.URL); err != nil {
		return nil, err
	}
	for _, h := range r.Headers {
		if strings.HasPrefix(h.Name, ":") { // a pseudo-header of HTTP/2
			continue
		}
		if err := p.line(h.Name, h.Value); err != nil {
			return nil, err
		}
	}
	d := r.PostData
	switch {
	case d == nil:
		return p, nil
	case d.Text != nil && d.Encoding == "base64":
		body, err := base64.StdEncoding.DecodeString(*d.Text)
		if err != nil {
			return nil, errors.New("the body of this request is not base64")
		}
		p.body = body
	case d.Text != nil && (*d.Text != "" || len(d.Params) == 0):
		p.body = []byte(*d.Text)
	default:
		var pairs []string
		for _, x := range d.Params {
			if x.FileName != "" || strings.HasPrefix(strings.ToLower(d.MimeType), "multipart/") {
				return nil, errors.New("the body of this request is in parts, which the file does not have as bytes")
			}
			pairs = append(pairs, url.QueryEscape(x.Name)+"="+url.QueryEscape(x.Value))
		}
		p.body = []byte(strings.Join(pairs, "&"))
	}
	if d.MimeType != "" && !p.has("Content-Type") {
		return p, p.line("Content-Type", d.MimeType)
	}
	return p, nil
}
