{{- define "operator.labels" -}}
app.kubernetes.io/name: tessera-operator
{{- end -}}
{{- define "operator.rules" -}}
- apiGroups: [mindspore.gitee.com]
  resources: [msjobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [mindspore.gitee.com]
  resources: [msjobs/status]
  verbs: [update]
- apiGroups: [tessera.dev]
  resources: [tesserajobs]
  verbs: [get, list, watch, patch, delete]
- apiGroups: [tessera.dev]
  resources: [tesserajobs/status]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services, secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end -}}
