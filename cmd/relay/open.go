package main

import (
	"net/url"
	"os/exec"
	"runtime"
)

// opener returns the command that opens a page in a browser on this machine, or nil if
// there is none, as on a machine without a screen.
func (p *program) opener(link string) *exec.Cmd {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil
	}
	name, args := "xdg-open", []string{u.String()}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", u.String()}
	default:
		if p.getenv("DISPLAY") == "" && p.getenv("WAYLAND_DISPLAY") == "" && p.getenv("BROWSER") == "" {
			return nil
		}
	}
	if _, err := exec.LookPath(name); err != nil {
		return nil
	}
	return exec.Command(name, args...)
}
