package secrets

import (
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/executor"
)

// maskSecrets removes the values of an attempt's secrets from text for other readers. The root is the folder of the
// attempt's secrets, "" for none. The function text returns the text with the given number of additional bytes.
func maskSecrets(root string, text func(more int) string) string {
	var values []string
	if root != "" {
		containers, _ := filepath.Glob(filepath.Join(root, "*")) // the pattern is valid
		for _, folder := range containers {
			folders, _ := filepath.Glob(filepath.Join(folder, "[0-9]*"))
			values = append(values, executor.SecretValues(folders, filepath.Join(folder, secretsEnv))...)
		}
	}
	if values = executor.MaskedTexts(values); len(values) == 0 {
		return text(0)
	}
	out := text(len(values[0]))
	out = maskBeginning(out, values)
	for _, v := range values {
		out = strings.ReplaceAll(out, v, executor.Masked)
	}
	return maskEnd(out, values)
}

// maskEnd masks the beginning of a value at the end of the text, where the text was cut.
func maskEnd(text string, values []string) string {
	for _, v := range values {
		for n := len(v) - 1; n >= executor.ShortSecret; n-- {
			if strings.HasSuffix(text, v[:n]) {
				return text[:len(text)-n] + executor.Masked
			}
		}
	}
	return text
}

// maskBeginning masks the end of a value at the beginning of the text, where the text was cut.
func maskBeginning(text string, values []string) string {
	for _, v := range values {
		for from := 1; len(v)-from >= executor.ShortSecret; from++ {
			if strings.HasPrefix(text, v[from:]) {
				return executor.Masked + text[len(v)-from:]
			}
		}
	}
	return text
}
