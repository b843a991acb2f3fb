package main

import "testing"

// TestUncleanPathsOfTheAPI: isAPIPath recognizes the paths of the API, even unclean ones.
func TestUncleanPathsOfTheAPI(t *testing.T) {
	for path, want := range map[string]bool{
		"/api": true, "/api/v1/me": true, "//api/v1/me": true, "/x/../api/v1/me": true, "/./api/v1/me": true, "/api/../x": true,
		"/": false, "/apis": false, "/x/api/": false, "/api.html": false, "": false,
	} {
		if got := isAPIPath(path); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
